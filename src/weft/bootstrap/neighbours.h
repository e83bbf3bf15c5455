// Which ranks keep connections to which, so that a death is noticed. A pure function of the job's size.
//
// In jobs of up to 16 ranks, all ranks are neighbours. In larger ones a rank opens links to those 1,
// ceil(sqrt(n)) and n/2 ranks further on, and so has six neighbours at most. A report crosses the job in
// about 2 sqrt(n) / 4 hops. A rank n/2 away is never in the same contiguous block of up to half the job. So
// a whole node that dies has watchers outside it.
#pragma once

#include <vector>

namespace weft::bootstrap {

inline constexpr int kFullMeshRanks = 16;

/// The ranks that `rank` opens links to, without repetition; of each pair of neighbours exactly one opens the
/// link.
std::vector<int> link_targets(int rank, int ranks);

}  // namespace weft::bootstrap
