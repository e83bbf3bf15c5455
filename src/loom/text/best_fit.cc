#include "text/best_fit.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace loom::text {

std::vector<std::vector<uint64_t>> best_fit(std::span<const int64_t> sizes, int64_t capacity) {
  std::vector<uint64_t> pieces(sizes.size());
  std::iota(pieces.begin(), pieces.end(), uint64_t{0});
  std::ranges::stable_sort(pieces, std::greater<>(), [&](uint64_t piece) { return sizes[piece]; });
  std::vector<std::vector<uint64_t>> bins;
  std::map<int64_t, std::vector<size_t>> bins_with_room;  // by how much they have
  for (const uint64_t piece : pieces) {
    const auto found = bins_with_room.lower_bound(sizes[piece]);
    int64_t room = capacity;
    size_t bin = bins.size();
    if (found == bins_with_room.end()) {
      bins.emplace_back();
    } else {
      room = found->first, bin = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) bins_with_room.erase(found);
    }
    bins[bin].push_back(piece);
    if (room > sizes[piece]) bins_with_room[room - sizes[piece]].push_back(bin);
  }
  for (std::vector<uint64_t>& bin : bins) std::ranges::sort(bin);
  std::ranges::sort(bins);
  return bins;
}

}  // namespace loom::text
