// Pieces in bins: each once, none too full, and few bins.
#include "text/best_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace loom::text {
namespace {

using Bins = std::vector<std::vector<uint64_t>>;

TEST(BestFit, LeavesTheLeastRoom) {
  EXPECT_EQ(best_fit(std::vector<int64_t>{3, 7, 5, 5}, 10), (Bins{{0, 1}, {2, 3}}));
  // 6 goes to 4 in its bin and not to the emptier one of 5.
  EXPECT_EQ(best_fit(std::vector<int64_t>{5, 6, 4}, 10), (Bins{{0}, {1, 2}}));
  EXPECT_EQ(best_fit(std::vector<int64_t>{10, 10}, 10), (Bins{{0}, {1}}));
  EXPECT_EQ(best_fit({}, 10), Bins{});
}

TEST(BestFit, HasEachPieceOnceAndFewBins) {
  std::mt19937 random(5);
  for (const int64_t capacity : {1, 7, 100, 1024}) {
    std::vector<int64_t> sizes(5000);
    int64_t all = 0;
    for (int64_t& size : sizes) all += size = 1 + static_cast<int64_t>(random()) % capacity;
    const Bins bins = best_fit(sizes, capacity);
    std::vector<int> seen(sizes.size());
    for (const std::vector<uint64_t>& bin : bins) {
      int64_t filled = 0;
      for (const uint64_t piece : bin) ++seen[piece], filled += sizes[piece];
      EXPECT_GE(filled, 1);
      EXPECT_LE(filled, capacity);
      EXPECT_TRUE(std::is_sorted(bin.begin(), bin.end()));
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 5000);
    EXPECT_LE(static_cast<double>(bins.size()),
              1.02 * static_cast<double>(all) / static_cast<double>(capacity) + 1);
    EXPECT_EQ(bins, best_fit(sizes, capacity));
  }
}

}  // namespace
}  // namespace loom::text
