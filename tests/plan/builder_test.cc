// Builder, names and sizes, and how plans are printed.
#include <gtest/gtest.h>

#include "plans.h"

namespace weft::plan {
namespace {

using testing::make_all;
using topology::Layout;

const Request kRequest{.collective = Collective::all_reduce, .count = 16};

TEST(Builder, NumbersTagsOfEachPairInAscendingOrder) {
  Builder b("test", kRequest, 3, 0);
  b.signal(0, 1, 700);
  b.signal(0, 2, 9);
  b.signal(0, 1, 20);
  b.wait(0, 1, 5);
  b.wait(0, 2, 1000);
  b.wait(0, 2, 4);
  const Plan plan = b.finish();
  std::vector<uint32_t> tags;
  for (const Step& step : plan.steps) tags.push_back(step.tag);
  EXPECT_EQ(tags, (std::vector<uint32_t>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(plan.wait_begin, (std::vector<uint32_t>{0, 0, 1, 3}));
  EXPECT_EQ(plan.notifications(), 3u);
}

TEST(Builder, ListsStepsLaneByLane) {
  Builder b("test", kRequest, 2, 0);
  const int second = 1;
  b.signal(0, 1, 0);
  b.signal(second, 1, 1);
  b.signal(0, 1, 2);
  EXPECT_EQ(b.new_lane(), 2);
  const StepId last = b.signal(b.new_lane(), 1, 3);
  b.wait(0, 1, 0, Space::none, {&last, 1});
  const Plan plan = b.finish();
  EXPECT_EQ(plan.lanes(), 4);
  EXPECT_EQ(plan.lane_steps, (std::vector<StepId>{0, 2, 4, 1, 3}));
  EXPECT_EQ(plan.lane_begin, (std::vector<uint32_t>{0, 3, 4, 4, 5}));
  EXPECT_TRUE(plan.has_dependents);
  EXPECT_EQ(plan.after(plan.steps[4])[0], last);
}

TEST(Builder, KeepsNotificationsOfEmptyPutsAndDropsEmptyWork) {
  Builder b("test", kRequest, 2, 0);
  const Source source{b.input()};
  EXPECT_EQ(b.put(0, 1, b.input(), {1, Space::output, 0}, 0, 0), 0u);
  EXPECT_EQ(b.copy(0, b.input(), b.output(), 0), kNoStep);
  EXPECT_EQ(b.copy(0, b.output(8), b.output(8), 4), kNoStep);
  EXPECT_EQ(b.reduce(0, {&source, 1}, b.output(), 0), kNoStep);
  const StepId first = 0, none = kNoStep;
  EXPECT_EQ(b.copy(0, b.input(), b.output(), 0, {&none, 1}), kNoStep);
  EXPECT_EQ(b.copy(0, b.input(), b.output(), 0, {&first, 1}), 1u) << "it may be there for its dependency";
  const Plan plan = b.finish();
  EXPECT_EQ(plan.steps[0].kind, StepKind::signal);
  EXPECT_EQ(plan.steps.size(), 2u);
}

TEST(Builder, ReservesAlignedScratchAndIsEmptyAfterwards) {
  Builder b("test", kRequest, 2, 0);
  EXPECT_EQ(b.reserve(1), 0u);
  EXPECT_EQ(b.reserve(0), 64u);
  EXPECT_EQ(b.reserve(10), 64u);
  EXPECT_EQ(b.finish().scratch_bytes, 74u);
  EXPECT_TRUE(b.finish().steps.empty());
}

TEST(Sizes, FollowTheCollective) {
  const auto sizes = [](Collective collective, int rank) {
    const Request request{.collective = collective, .count = 10, .element_bytes = 2, .root = 1};
    return std::tuple(input_bytes(request, 3, rank), output_bytes(request, 3, rank),
                      in_place_offset(request, rank));
  };
  using S = std::tuple<uint64_t, uint64_t, uint64_t>;
  EXPECT_EQ(sizes(Collective::all_reduce, 2), S(20, 20, 0));
  EXPECT_EQ(sizes(Collective::all_gather, 2), S(20, 60, 40));
  EXPECT_EQ(sizes(Collective::reduce_scatter, 2), S(60, 20, 40));
  EXPECT_EQ(sizes(Collective::broadcast, 1), S(20, 20, 0));
  EXPECT_EQ(sizes(Collective::broadcast, 2), S(0, 20, 0));
  EXPECT_EQ(sizes(Collective::reduce, 1), S(20, 20, 0));
  EXPECT_EQ(sizes(Collective::reduce, 2), S(20, 0, 0));
  EXPECT_EQ(sizes(Collective::all_to_all, 2), S(60, 60, 0));
  EXPECT_EQ(sizes(Collective::gather, 1), S(20, 60, 20));
  EXPECT_EQ(sizes(Collective::gather, 2), S(20, 0, 40));
  EXPECT_EQ(sizes(Collective::scatter, 1), S(60, 20, 20));
  EXPECT_EQ(sizes(Collective::scatter, 2), S(0, 20, 40));
  EXPECT_EQ(sizes(Collective::send, 2), S(20, 0, 0));
  EXPECT_EQ(sizes(Collective::recv, 2), S(0, 20, 0));
}

/// The latency path: nothing but a put, a wait and a reduce.
TEST(Print, OneHopAllReduceOfTwoRanks) {
  const auto plans =
      make_all("one_hop", {.collective = Collective::all_reduce, .count = 2}, Layout::blocks(1, 2));
  EXPECT_EQ(to_string(plans[1]),
            "AllReduce by one_hop: rank 1 of 2, 2 elements of 4 B; 3 steps in 1 lane, 16 B of scratch\n"
            "   0  lane 0   put    8 B  input+0 -> rank 0 scratch+8, tag 0\n"
            "   1  lane 0   wait   rank 0, tag 0\n"
            "   2  lane 0   reduce 8 B  scratch+0 + input+0 -> output+0, final, after 0\n");
}

TEST(Print, HandlesRootsAndStrictOrder) {
  const auto plans = make_all("direct", {.collective = Collective::broadcast, .count = 100, .root = 1},
                              Layout::blocks(1, 2));
  EXPECT_EQ(
      to_string(plans[0]),
      "Broadcast by direct: rank 0 of 2, 100 elements of 4 B, root 1; 3 steps in 1 lane, 0 B of scratch\n"
      "   0  lane 0   wait   rank 1, tag 0, learns input\n"
      "   1  lane 0   copy   400 B  rank 1 input+0 -> output+0\n"
      "   2  lane 0   signal rank 1, tag 0\n");
  const auto strict = make_all("one_hop", {.collective = Collective::all_reduce, .count = 2, .strict = true},
                               Layout::blocks(1, 1));
  EXPECT_EQ(to_string(strict[0]),
            "AllReduce by one_hop: rank 0 of 1, 2 elements of 4 B, strict; 1 step in 1 lane, 0 B of scratch\n"
            "   0  lane 0   reduce 8 B  input+0 -> output+0, final\n");
}

}  // namespace
}  // namespace weft::plan
