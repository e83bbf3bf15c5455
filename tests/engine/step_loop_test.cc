// The step loop over a table of step operations that the tests script: which steps it does, in which order,
// and where it leaves a lane.
#include "engine/run/step_loop.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace weft::engine {
namespace {

using plan::Builder;
using plan::Collective;
using plan::StepId;
using plan::StepKind;

/// Notes which steps it is asked for, and answers as the script says; `done` where that says nothing.
class ScriptedTable {
 public:
  std::map<StepKind, StepOutcome> answers;
  std::vector<StepKind> asked;
  std::vector<StepId> completed_steps;
  bool is_ready = true;

  StepOutcome put(StepId, const plan::Step&) { return answer(StepKind::put); }
  StepOutcome signal(const plan::Step&) { return answer(StepKind::signal); }
  StepOutcome wait(const plan::Step&) { return answer(StepKind::wait); }
  StepOutcome copy(const plan::Step&, LaneState&) { return answer(StepKind::copy); }
  StepOutcome reduce(const plan::Step&, LaneState&) { return answer(StepKind::reduce); }
  bool ready(const plan::Step&) const { return is_ready; }
  bool memory_lost() const { return false; }
  void completed(StepId id, const plan::Step&, LaneState&) { completed_steps.push_back(id); }

 private:
  StepOutcome answer(StepKind kind) {
    asked.push_back(kind);
    const auto found = answers.find(kind);
    return found == answers.end() ? StepOutcome::done : found->second;
  }
};

/// One lane with a step of each kind.
plan::Plan one_of_each() {
  Builder builder("scripted", {.collective = Collective::all_reduce, .count = 4}, 2, 0);
  const uint64_t scratch = builder.reserve(16);
  const plan::Source sources[] = {{builder.input()}, {builder.scratch(scratch)}};
  builder.put(0, 1, builder.input(), {1, plan::Space::scratch, 0}, 16, 0);
  builder.wait(0, 1, 0);
  builder.reduce(0, sources, builder.output(), 16);
  builder.copy(0, builder.output(), builder.scratch(scratch), 16);
  builder.signal(0, 1, 1);
  return builder.finish();
}

const std::vector<StepKind> kAll = {StepKind::put, StepKind::wait, StepKind::reduce, StepKind::copy,
                                    StepKind::signal};

TEST(StepLoop, DoesTheStepsOfALaneInOrder) {
  const plan::Plan plan = one_of_each();
  ScriptedTable table;
  LaneState lane;
  EXPECT_EQ(run_lane(table, plan, lane, plan.lane_begin[1]), StepOutcome::done);
  EXPECT_EQ(table.asked, kAll);
  EXPECT_EQ(table.completed_steps, plan.lane_steps);
  EXPECT_EQ(lane.next, plan.lane_begin[1]);
}

TEST(StepLoop, LeavesALaneAtAStepThatIsNotDoneAndGoesOnThere) {
  const plan::Plan plan = one_of_each();
  for (const StepOutcome outcome :
       {StepOutcome::waits, StepOutcome::retry, StepOutcome::turn_over, StepOutcome::failed}) {
    for (size_t at = 0; at < kAll.size(); ++at) {
      ScriptedTable table;
      LaneState lane;
      table.answers[kAll[at]] = outcome;
      EXPECT_EQ(run_lane(table, plan, lane, plan.lane_begin[1]), outcome);
      EXPECT_EQ(lane.next, at);
      EXPECT_EQ(table.completed_steps.size(), at);
      table.answers.clear();
      table.asked.clear();
      EXPECT_EQ(run_lane(table, plan, lane, plan.lane_begin[1]), StepOutcome::done);
      EXPECT_EQ(table.asked, std::vector(kAll.begin() + static_cast<std::ptrdiff_t>(at), kAll.end()));
    }
  }
}

TEST(StepLoop, TriesNoStepBeforeThoseThatItComesAfter) {
  const plan::Plan plan = one_of_each();
  ScriptedTable table;
  LaneState lane;
  table.is_ready = false;
  EXPECT_EQ(run_lane(table, plan, lane, plan.lane_begin[1]), StepOutcome::waits);
  EXPECT_TRUE(table.asked.empty());
}

// The fast path keeps its lane's next step only.
TEST(StepProgress, FollowsTheFastPathFromWhereItStopped) {
  const auto tables = PlanTables::make(one_of_each(), topology::Layout({0, 0}));
  ASSERT_TRUE(tables->fast);
  StepProgress progress;
  progress.reset_arrivals(*tables);
  progress.lanes[0].next = 2;  // its put and its wait are done
  progress.follow_fast_path(*tables);
  EXPECT_EQ(progress.lanes[0].next, 2u);
  EXPECT_EQ(progress.puts_started, 1u);
  EXPECT_EQ(progress.puts_open, 0u);
  EXPECT_TRUE(progress.completions[0].done);
  EXPECT_FALSE(progress.complete());
  EXPECT_FALSE(progress.reap_puts(*tables));
  EXPECT_EQ(progress.awaited_peers(*tables), std::vector<int>{});
  EXPECT_TRUE(progress.deals_with(1, *tables));  // its signal is left
}

TEST(StepProgress, AwaitsAPutThatIsUnderWayAndANotificationThatHasNotCome) {
  const auto tables = PlanTables::make(one_of_each(), topology::Layout({0, 0}));
  StepProgress progress;
  progress.reset_arrivals(*tables);
  progress.reset_steps(*tables, 0);
  progress.lanes[0].next = 2;
  progress.begin_put(progress.completions[0]);
  EXPECT_EQ(progress.awaited_peers(*tables), std::vector<int>{1});
  progress.completions[0].done = true;
  EXPECT_TRUE(progress.reap_puts(*tables));
  EXPECT_EQ(progress.awaited_peers(*tables), std::vector<int>{});
  progress.lanes[0].next = 1;
  EXPECT_EQ(progress.awaited_peers(*tables), std::vector<int>{1});
  progress.arrived[0] = 1;
  EXPECT_EQ(progress.awaited_peers(*tables), std::vector<int>{});
}

}  // namespace
}  // namespace weft::engine
