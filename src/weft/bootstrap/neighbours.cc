// The graph of links.
#include "bootstrap/neighbours.h"

#include <cmath>

namespace weft::bootstrap {

std::vector<int> link_targets(int rank, int ranks) {
  std::vector<int> targets;
  if (ranks <= kFullMeshRanks) {
    for (int other = rank + 1; other < ranks; ++other) targets.push_back(other);
    return targets;
  }
  const int stride = static_cast<int>(std::ceil(std::sqrt(ranks)));
  targets = {(rank + 1) % ranks, (rank + stride) % ranks};
  const int half = ranks / 2;
  // With an even number of ranks both ends are half the job apart: the lower one opens.
  if (ranks % 2 == 1 || rank < half) targets.push_back((rank + half) % ranks);
  return targets;
}

}  // namespace weft::bootstrap
