// Where blocks of a lane have to meet: for every generator, and in plans by hand.
#include "plan/block_barriers.h"

#include <gtest/gtest.h>

#include <set>

#include "plans.h"

namespace weft::plan {
namespace {

using testing::make_all;
using topology::Layout;

/// "AllReduce ring" for every algorithm that needs a barrier in one of the cases.
std::set<std::string> algorithms_with_barriers(uint64_t eager_bytes) {
  std::set<std::string> with;
  for (const Algorithm& algorithm : algorithms()) {
    if (is_transfer(algorithm.collective)) continue;
    for (const int ranks : {2, 3, 4, 8}) {
      for (const uint64_t count : {8, 100, 4096}) {
        const Request request{
            .collective = algorithm.collective, .count = count, .element_bytes = 8, .disjoint = true};
        const Limits limits{
            .eager_intra_bytes = eager_bytes, .eager_inter_bytes = eager_bytes, .slice_bytes = 4096};
        const Layout layout = Layout::blocks(1, ranks);
        if (!algorithm.fits(request, layout, limits).ok()) continue;
        const auto plans = make_all(algorithm, request, layout, limits);
        const auto barriers = find_block_barriers(plans, layout, limits);
        EXPECT_TRUE(barriers.ok()) << testing::describe(algorithm, request, layout, limits);
        if (barriers && barriers->count() > 0)
          with.insert(fmt::format("{} {}", name_of(algorithm.collective), algorithm.name));
      }
    }
  }
  return with;
}

// All others are right with any number of blocks a lane, and no barrier.
TEST(BlockBarriers, AreNeededWhereStepsReadOtherPartsThanWaitsBrought) {
  const std::set<std::string> exposed{
      "AllGather binomial", "AllGather recursive_doubling", "AllReduce recursive_halving",
      "Gather binomial",    "ReduceScatter binomial",       "ReduceScatter recursive_halving",
      "Scatter binomial"};
  std::set<std::string> eager = exposed;
  eager.insert({"AlltoAll binomial", "AlltoAll bruck"});  // which expose nothing
  EXPECT_EQ(algorithms_with_barriers(1 << 20), eager);
  EXPECT_EQ(algorithms_with_barriers(0), exposed);
}

constexpr Limits kEager{.eager_intra_bytes = 1 << 20, .eager_inter_bytes = 1 << 20};
const Request kGather{.collective = Collective::gather, .count = 64, .element_bytes = 1, .root = 1};

/// Rank 0 puts its input, 64 bytes, into rank 1's scratch. What rank 1 does with that, `take` says.
std::vector<Plan> put_and(void (*take)(Builder&)) {
  Builder sender("by_hand", kGather, 2, 0), receiver("by_hand", kGather, 2, 1);
  sender.put(0, 1, sender.input(), {1, Space::scratch, 0}, 64, 0);
  receiver.reserve(256);
  receiver.wait(0, 0, 0);
  take(receiver);
  std::vector<Plan> plans;
  plans.push_back(sender.finish());
  plans.push_back(receiver.finish());
  return plans;
}

std::vector<std::vector<bool>> barriers_of(const std::vector<Plan>& plans) {
  const auto found = find_block_barriers(plans, Layout::blocks(1, 2), kEager);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found ? found->before : std::vector<std::vector<bool>>();
}

TEST(BlockBarriers, NoneWhereAStepReadsWhatItsWaitBrought) {
  const auto plans = put_and([](Builder& b) { b.copy(0, b.scratch(), b.output(), 64); });
  EXPECT_EQ(barriers_of(plans), (std::vector<std::vector<bool>>{{false}, {false, false}}));
}

TEST(BlockBarriers, OneWhereAStepReadsHalfOfIt) {
  const auto plans = put_and([](Builder& b) {
    b.copy(0, b.scratch(), b.output(), 32);
    b.copy(0, b.scratch(32), b.output(32), 32);  // the barrier in front of the first serves both
  });
  EXPECT_EQ(barriers_of(plans), (std::vector<std::vector<bool>>{{false}, {false, true, false}}));
}

TEST(BlockBarriers, OneInEachLaneThatReadsAnotherPart) {
  const auto plans = put_and([](Builder& b) {
    const StepId whole = b.copy(0, b.scratch(), b.scratch(64), 64);
    b.copy(1, b.scratch(64), b.output(), 32, {&whole, 1});
    b.copy(2, b.scratch(96), b.output(32), 32, {&whole, 1});
  });
  EXPECT_EQ(barriers_of(plans), (std::vector<std::vector<bool>>{{false}, {false, false, true, true}}));
}

TEST(BlockBarriers, OneWhereAStepOverwritesAnotherPart) {
  const auto plans = put_and([](Builder& b) {
    b.copy(0, b.scratch(), b.output(), 64);
    b.copy(0, b.scratch(128), b.scratch(16), 16);
  });
  EXPECT_EQ(barriers_of(plans), (std::vector<std::vector<bool>>{{false}, {false, false, true}}));
}

}  // namespace
}  // namespace weft::plan
