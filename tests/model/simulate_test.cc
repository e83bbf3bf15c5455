// The simulator against cases that can be worked out by hand: steps in lanes, dependencies, what is told of a
// plan, and what is refused. Further such cases are in messages_test.cc, workers_test.cc, streak_test.cc and
// cores_test.cc.
#include "model/simulate.h"

#include <gtest/gtest.h>

#include "model/plans_by_hand.h"

namespace weft::model {
namespace {

using plan::Builder;
using plan::Plan;
using plan::Space;
using plan::StepId;
using topology::Layout;

TEST(Simulate, LanesShareTheCpuAndDependenciesOrderThem) {
  const auto copies = plans_of(1, [](Builder& b) {
    const StepId first = b.copy(0, b.input(), b.scratch(), 1000);
    b.copy(1, b.input(), b.scratch(1024), 1000);
    b.copy(2, b.scratch(), b.output(), 1000, {{first}});
  });
  const Simulation result = run(copies, Layout::blocks(1, 1));
  EXPECT_DOUBLE_EQ(result.total_us, 3);
  EXPECT_DOUBLE_EQ(result.steps[0][1].ready_us, 0);
  EXPECT_DOUBLE_EQ(result.steps[0][1].start_us, 1);
  EXPECT_DOUBLE_EQ(result.steps[0][2].ready_us, 1);
  EXPECT_DOUBLE_EQ(result.steps[0][2].start_us, 2);
  EXPECT_EQ(result.steps[0][2].cause_step, 0u);
}

TEST(Simulate, DependencyOnAPutInTheSameLaneWaitsForItsSource) {
  const auto plans = plans_of(2, [](Builder& b) {
    if (b.rank() == 1) {
      b.wait(0, 0, 0);
      return;
    }
    const StepId put = b.put(0, 1, b.scratch(), at(1, Space::output), 1000, 0);
    b.copy(0, b.input(), b.scratch(), 1000, {{put}});
  });
  EXPECT_DOUBLE_EQ(run(plans, Layout::blocks(2, 1)).finish_us[0], 10 + 1);
}

TEST(Simulate, CriticalPathAddsUpToTheTotal) {
  // Round about: put to the other node, reduce there, put on inside, copy there.
  const auto plans = plans_of(3, [](Builder& b) {
    if (b.rank() == 0) b.put(0, 1, b.input(), at(1, Space::scratch), 1000, 0);
    if (b.rank() == 1) {
      b.wait(0, 0, 0);
      const plan::Source sources[] = {{b.input()}, {b.scratch()}};
      b.reduce(0, sources, b.output(), 1000);
      b.put(0, 2, b.output(), at(2, Space::scratch), 1000, 0);
    }
    if (b.rank() == 2) {
      b.wait(0, 1, 0);
      b.copy(0, b.scratch(), b.output(), 1000);
    }
  });
  const Simulation result = run(plans, Layout({0, 1, 1}));
  EXPECT_DOUBLE_EQ(result.critical.inter_us, 20);
  EXPECT_DOUBLE_EQ(result.critical.reduce_us, 2);
  EXPECT_DOUBLE_EQ(result.critical.intra_us, 11);
  EXPECT_DOUBLE_EQ(result.critical.copy_us, 1);
  EXPECT_DOUBLE_EQ(result.critical.queued_us, 0);
  EXPECT_EQ(result.critical.messages, 2);
  EXPECT_DOUBLE_EQ(result.total_us, 34);
}

TEST(Simulate, SaysWhoIsStuck) {
  auto plans = one_put(8);
  plans[0] = Builder("by hand", kRequest, 2, 0).finish();
  const Result<Simulation> result = simulate(plans, Layout::blocks(2, 1), plain_machine(), kLimits);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::internal_error);
  EXPECT_NE(
      result.status().message().find("rank 1 is stuck in lane 0 at step 0, waiting for tag 0 from rank 0"),
      std::string::npos)
      << result.status().message();
}

TEST(Simulate, RefusesPlansThatAreNotTheLayouts) {
  const auto plans = one_put(8);
  EXPECT_EQ(simulate(plans, Layout::blocks(3, 1), plain_machine(), kLimits).status().code(),
            Code::invalid_argument);
  const std::vector<Plan> twice{plans[0], plans[0]};
  EXPECT_EQ(simulate(twice, Layout::blocks(2, 1), plain_machine(), kLimits).status().code(),
            Code::invalid_argument);
}

TEST(Simulate, IsDeterministic) {
  Machine machine;
  const auto plans = ring(16, 12345);
  const Layout layout = Layout::blocks(4, 4);
  const Simulation first = run(plans, layout, machine), second = run(plans, layout, machine);
  EXPECT_EQ(first.total_us, second.total_us);
  EXPECT_EQ(first.finish_us, second.finish_us);
}

}  // namespace
}  // namespace weft::model
