// Best-fit decreasing: pieces of several sizes in as few bins of one size as is quickly found. The largest
// piece comes first; each goes where the least room is left behind it (Johnson, "Near-optimal bin packing
// algorithms", 1973: at most 11/9 of the fewest bins, and some).
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loom::text {

/// For each bin its pieces, ascending; bins in the order of their first pieces. Sizes are in [1, capacity].
std::vector<std::vector<uint64_t>> best_fit(std::span<const int64_t> sizes, int64_t capacity);

}  // namespace loom::text
