// The verifier must be able to fail: good plans, each broken in one way, and what is said of them.
#include "plan/verify.h"

#include <gtest/gtest.h>

#include "mutate.h"
#include "plans.h"

namespace weft::plan {
namespace {

using testing::derive_tables;
using testing::drop_signal;
using testing::drop_step;
using testing::find_step;
using testing::kShortIsEager;
using testing::make_all;
using testing::set_after;
using topology::Layout;

const Limits kNothingEager{.eager_intra_bytes = 0, .eager_inter_bytes = 0, .slice_bytes = 256};

/// Whether a message has all of these in it.
::testing::AssertionResult says(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts) {
    if (message.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

struct Broken : ::testing::Test {
  Layout layout = Layout::blocks(1, 3);
  Limits limits = kShortIsEager;
  std::vector<Plan> plans;

  void make(std::string_view algorithm, Collective collective, uint64_t count = 8) {
    plans = make_all(algorithm, {.collective = collective, .count = count}, layout, limits);
    ASSERT_TRUE(verify(plans, layout, limits, false).ok()) << message();
    ASSERT_TRUE(verify(plans, layout, limits, true).ok()) << message(true);
  }
  Step& step(int rank, StepKind kind, int n = 0) {
    return plans[rank].steps[find_step(plans[rank], kind, n)];
  }
  Region& source(int rank, StepKind kind, int n = 0, int index = 0) {
    return plans[rank].regions[step(rank, kind, n).sources + index];
  }
  std::string message(bool in_place = false) const {
    return verify(plans, layout, limits, in_place).message();
  }
};

TEST_F(Broken, LostWait) {
  make("one_hop", Collective::all_gather);
  drop_step(plans[1], find_step(plans[1], StepKind::wait));
  EXPECT_TRUE(says(message(), {"rank 0 step", "rank 1 does not wait for it"}));
}

TEST_F(Broken, LostPut) {
  make("one_hop", Collective::all_gather);
  drop_step(plans[2], find_step(plans[2], StepKind::put));
  EXPECT_TRUE(says(message(), {"rank 0 step", "for rank 2, tag 0", "nobody sends that"}));
}

TEST_F(Broken, LostCopy) {
  make("one_hop", Collective::all_gather);
  drop_step(plans[2], find_step(plans[2], StepKind::copy));
  EXPECT_TRUE(says(message(), {"rank 2's output [64, 96) was never written"}));
  EXPECT_EQ(message(true), "") << "in place there is nothing to copy";
}

TEST_F(Broken, SameTagTwice) {
  make("direct", Collective::all_reduce, 200);
  step(0, StepKind::signal, 0).tag = step(0, StepKind::signal, 2).tag;
  EXPECT_TRUE(says(message(), {"sends the same tag"}));
  make("direct", Collective::all_reduce, 200);
  Step& wait = step(0, StepKind::wait, 0);
  for (Step& other : plans[0].steps) {
    if (other.kind == StepKind::wait && other.peer == wait.peer) other.tag = wait.tag;
  }
  EXPECT_TRUE(says(message(), {"waits for the same tag"}));
}

TEST_F(Broken, GapInTags) {
  make("one_hop", Collective::all_gather);
  step(1, StepKind::wait).tag = 1;
  derive_tables(plans[1]);
  EXPECT_TRUE(says(message(), {"rank 1 never waits for tag 0 of rank 0"}));
}

TEST_F(Broken, PutToAnotherRankThanNotified) {
  make("one_hop", Collective::all_gather);
  std::swap(step(0, StepKind::put, 0).peer, step(0, StepKind::put, 1).peer);
  EXPECT_TRUE(says(message(), {"must write to rank"}));
}

TEST_F(Broken, SwappedBlocks) {
  make("one_hop", Collective::reduce_scatter);
  std::swap(source(0, StepKind::put, 0), source(0, StepKind::put, 1));
  EXPECT_TRUE(says(message(), {"comes from byte", "of the inputs"}));
  make("one_hop", Collective::scatter);
  std::swap(source(0, StepKind::put, 0), source(0, StepKind::put, 1));
  EXPECT_TRUE(says(message(), {"holds byte 64 of ranks 0", "should be byte 32"}));
}

TEST_F(Broken, LostDependencyOnAPut) {
  make("one_hop", Collective::all_reduce);
  set_after(plans[1], find_step(plans[1], StepKind::reduce), {});
  EXPECT_EQ(message(), "") << "out of place, input is not overwritten";
  EXPECT_TRUE(says(message(true), {"race", "reads rank 1's input", "writes rank 1's output"}));
}

TEST_F(Broken, OffsetOutOfBounds) {
  make("one_hop", Collective::all_gather);
  step(0, StepKind::put).dst.offset += 80;
  EXPECT_TRUE(says(message(), {"rank 1's output [80, 112)", "has 96 bytes"}));
}

TEST_F(Broken, OffsetIntoAnotherBlock) {
  make("one_hop", Collective::all_gather);
  step(0, StepKind::put).dst.offset += 4;
  EXPECT_TRUE(says(message(), {"race", "writes rank 1's output"}));
}

TEST_F(Broken, UnwrittenSource) {
  make("one_hop", Collective::reduce);
  plans[0].scratch_bytes += 32;
  source(0, StepKind::reduce, 0, 1).offset += 64;
  EXPECT_TRUE(says(message(), {"reads rank 0's scratch [96, 128)", "never written"}));
}

TEST_F(Broken, CutElements) {
  make("one_hop", Collective::all_reduce);
  step(0, StepKind::reduce).bytes -= 2;
  EXPECT_TRUE(says(message(), {"cuts elements of 4 bytes"}));
}

TEST_F(Broken, OverlappingCopy) {
  make("direct", Collective::all_gather);
  source(0, StepKind::copy, 1) = {0, Space::output, 28};
  step(0, StepKind::copy, 1).dst.offset = 32;
  EXPECT_TRUE(says(message(), {"overlaps its source"}));
}

TEST_F(Broken, WriteToInput) {
  make("one_hop", Collective::all_reduce);
  step(0, StepKind::reduce).dst.space = Space::input;
  EXPECT_TRUE(says(message(), {"writes to an input"}));
}

TEST_F(Broken, NoFinalReduce) {
  make("one_hop", Collective::all_reduce);
  step(2, StepKind::reduce).final = false;
  EXPECT_TRUE(says(message(), {"rank 2's output [0, 32)", "no final reduce"}));
}

TEST_F(Broken, FinalReduceOfAPart) {
  make("one_hop", Collective::all_reduce);
  --step(2, StepKind::reduce).source_count;
  EXPECT_TRUE(says(message(), {"a final reduce of only ranks 0, 1"}));
}

TEST_F(Broken, FinalTwice) {
  make("recursive_doubling", Collective::all_reduce);
  step(0, StepKind::reduce, 0).final = true;
  EXPECT_TRUE(says(message(), {"a final reduce of only ranks 0, 1"}));
  make("direct", Collective::all_reduce, 200);
  // One more reduce of what is final already.
  Step again = step(0, StepKind::reduce);
  plans[0].regions.push_back(again.dst), plans[0].contributions.push_back(3);
  again.sources = static_cast<uint32_t>(plans[0].regions.size() - 1), again.source_count = 1;
  plans[0].steps.insert(plans[0].steps.begin() + find_step(plans[0], StepKind::reduce) + 1, again);
  derive_tables(plans[0]);
  EXPECT_TRUE(says(message(), {"is final already"}));
}

TEST_F(Broken, SameContributionTwice) {
  make("one_hop", Collective::all_reduce);
  source(0, StepKind::reduce, 0, 2) = source(0, StepKind::reduce, 0, 1);
  EXPECT_TRUE(says(message(), {"source 2 adds ranks 1 again"}));
}

TEST_F(Broken, AnotherNumberOfContributions) {
  make("ring", Collective::all_reduce, 200);
  const Step& last = step(1, StepKind::reduce, 1);
  ++plans[1].contributions[last.sources];
  EXPECT_TRUE(says(message(),
                   {"rank 1 step", "source 0 holds the contributions of ranks", "the plan says of 3 ranks"}));
}

TEST_F(Broken, LostClosingSignal) {
  make("direct", Collective::all_gather);
  // The last signal of rank 0 says "done" to rank 2, whose input it has read.
  drop_signal(plans, 0, find_step(plans[0], StepKind::signal, 3));
  EXPECT_TRUE(
      says(message(), {"rank 0 step", "reads rank 2's input", "possibly after rank 2's plan has ended"}));
}

TEST_F(Broken, ReadBeforeTheHandleIsKnown) {
  make("direct", Collective::all_gather);
  const StepId copy = find_step(plans[0], StepKind::copy, 1);
  std::swap(plans[0].steps[copy], plans[0].steps[copy - 1]);  // with its wait
  EXPECT_TRUE(says(message(), {"reads rank 1's input", "no earlier wait of this rank has learned"}));
}

TEST_F(Broken, ReadBeforeTheDataIsThere) {
  limits.slice_bytes = 256;
  make("direct", Collective::all_reduce, 600);
  // Rank 1 announces a slice before it has reduced it.
  const StepId reduce = find_step(plans[1], StepKind::reduce);
  std::swap(plans[1].steps[reduce], plans[1].steps[reduce + 1]);
  EXPECT_TRUE(says(message(), {"race", "rank 1's output"}));
}

TEST_F(Broken, AnotherHandleThanExpected) {
  make("direct", Collective::all_gather);
  step(0, StepKind::signal).exposes = Space::output;
  EXPECT_TRUE(says(message(), {"expects to learn input", "exposes output"}));
}

TEST_F(Broken, EmptySpaceExposed) {
  make("direct", Collective::all_gather);
  step(0, StepKind::signal).exposes = Space::scratch;
  EXPECT_TRUE(says(message(), {"exposes scratch, of which rank 0 has 0 bytes"}));
}

TEST_F(Broken, LongPutIntoWhatIsNotExposed) {
  make("one_hop", Collective::all_gather);
  limits.eager_intra_bytes = 31;
  EXPECT_TRUE(says(message(), {"puts more than is eager into rank 1's output [0, 32)"}));
}

TEST_F(Broken, ReadsAcrossNodes) {
  make("direct", Collective::all_gather);
  layout = Layout(std::vector{0, 0, 1});
  EXPECT_TRUE(says(message(), {"reads rank", "which it cannot reach"}));
}

TEST_F(Broken, EveryoneWaitsFirst) {
  make("one_hop", Collective::all_gather);
  for (Plan& plan : plans) std::rotate(plan.steps.begin(), plan.steps.begin() + 3, plan.steps.end());
  EXPECT_TRUE(says(message(), {"deadlock", "rank 0 step 0 (wait for rank 2, tag 0)", "rank 2 step 0"}));
}

TEST_F(Broken, StepsThatWaitForEachOther) {
  make("one_hop", Collective::all_gather);
  set_after(plans[0], 0, {1});
  set_after(plans[0], 1, {0});
  EXPECT_TRUE(says(message(), {"deadlock"}));
}

TEST_F(Broken, LostCredit) {
  layout = Layout::blocks(4, 1);
  limits = kNothingEager;
  make("ring", Collective::reduce_scatter, 2 << 20);  // so long that there are but two places
  bool found = false;
  for (StepId id = 0; id < plans[0].steps.size() && !found; ++id) {
    const Step& step = plans[0].steps[id];
    if (step.kind != StepKind::signal || step.exposes != Space::none) continue;
    drop_signal(plans, 0, id);
    found = true;
  }
  ASSERT_TRUE(found);
  EXPECT_TRUE(says(message(), {"race", "writes rank 0's scratch"}));
}

/// Notifications may overtake each other; a plan that takes one slice's for another's must be caught.
TEST_F(Broken, ReliesOnArrivalOrder) {
  layout = Layout::blocks(3, 1);
  limits = kNothingEager;
  make("ring", Collective::all_gather, 128);
  Step &first = step(1, StepKind::wait, 1), &second = step(1, StepKind::wait, 2);
  ASSERT_EQ(first.peer, second.peer);
  std::swap(first.tag, second.tag);
  EXPECT_TRUE(says(message(), {"race", "rank 1's output"}));
}

TEST_F(Broken, StrictOrderWithPartialSums) {
  const Request request{.collective = Collective::all_reduce, .count = 8, .strict = true};
  plans = make_all("recursive_doubling", request, layout, limits);
  EXPECT_TRUE(says(message(), {"not added in strict order"}));
  plans = make_all("one_hop", request, layout, limits);
  EXPECT_EQ(message(), "");
  std::swap(source(0, StepKind::reduce, 0, 0), source(0, StepKind::reduce, 0, 1));
  EXPECT_TRUE(says(message(), {"rank 0's output [0, 32), not added in strict order"}));
}

TEST_F(Broken, PlanOfAnotherRankOrRequest) {
  make("one_hop", Collective::all_gather);
  std::swap(plans[0], plans[1]);
  EXPECT_TRUE(says(message(), {"the plan of rank 0 of 3 says it is rank 1 of 3"}));
  make("one_hop", Collective::all_gather);
  plans[2].request.count = 9;
  EXPECT_TRUE(says(message(), {"rank 2's plan is for another request"}));
  plans.pop_back();
  EXPECT_TRUE(says(message(), {"2 plans for 3 ranks"}));
}

TEST_F(Broken, IdsOutOfRange) {
  make("one_hop", Collective::all_gather);
  set_after(plans[0], 1, {99});
  EXPECT_TRUE(says(message(), {"step 1 comes after step 99"}));
  make("one_hop", Collective::all_gather);
  step(0, StepKind::put).peer = 3;
  EXPECT_TRUE(says(message(), {"names rank 3, must be another in [0, 3)"}));
  make("one_hop", Collective::all_gather);
  step(0, StepKind::put).sources = 1000;
  EXPECT_TRUE(says(message(), {"lie outside the plan's"}));
  make("one_hop", Collective::all_gather);
  std::swap(plans[0].lane_steps[0], plans[0].lane_steps[1]);
  EXPECT_TRUE(says(message(), {"out of place in the table of lane 0"}));
}

TEST(BrokenPair, SendThatMeetsNoReceive) {
  const Layout layout = Layout::blocks(2, 1);
  const Algorithm& send = *find_algorithm(Collective::send, "point_to_point");
  const Algorithm& recv = *find_algorithm(Collective::recv, "point_to_point");
  const Plan sent =
      send.make({.collective = Collective::send, .count = 8, .root = 1}, layout, kNothingEager, 0);
  Plan received =
      recv.make({.collective = Collective::recv, .count = 8, .root = 0}, layout, kNothingEager, 1);
  EXPECT_EQ(verify_pair(sent, received, layout, kNothingEager).message(), "");
  EXPECT_TRUE(says(verify_pair(sent, sent, layout, kNothingEager).message(), {"does not meet"}));
  received.steps[0].exposes = Space::none;
  EXPECT_TRUE(
      says(verify_pair(sent, received, layout, kNothingEager).message(), {"expects to learn output"}));
}

// Without a message the end that expects something would never hear of the other's mistake.
TEST(Pair, OfNothingIsOneNotification) {
  const Layout layout = Layout::blocks(2, 1);
  for (const Limits& limits : {kShortIsEager, kNothingEager}) {
    const Plan sent = find_algorithm(Collective::send, "point_to_point")
                          ->make({.collective = Collective::send, .count = 0, .root = 1}, layout, limits, 0);
    const Plan received =
        find_algorithm(Collective::recv, "point_to_point")
            ->make({.collective = Collective::recv, .count = 0, .root = 0}, layout, limits, 1);
    EXPECT_EQ(verify_pair(sent, received, layout, limits).message(), "");
    EXPECT_EQ(sent.steps.size(), 1u);
    EXPECT_EQ(received.steps.size(), 1u);
  }
}

/// Plans are as short as they can be: whatever single step is dropped, the verifier notices.
TEST(EveryStepCounts, DroppingAnyIsCaught) {
  const Layout layout(std::vector{0, 1, 0, 1, 2});
  const Layout one_node = Layout::blocks(1, 4);
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == Collective::send || algorithm.collective == Collective::recv) continue;
    const Layout& l = algorithm.name == "direct" ? one_node : layout;
    for (const Limits& limits : {kShortIsEager, kNothingEager}) {
      const Request request{.collective = algorithm.collective, .count = 100, .root = 1};
      if (!algorithm.fits(request, l, limits).ok()) continue;
      const std::vector<Plan> good = make_all(algorithm, request, l, limits);
      for (int rank = 0; rank < l.ranks(); ++rank) {
        for (StepId id = 0; id < good[rank].steps.size(); ++id) {
          std::vector<Plan> broken = good;
          drop_step(broken[rank], id);
          const bool caught = !verify(broken, l, limits, false).ok() || !verify(broken, l, limits, true).ok();
          EXPECT_TRUE(caught) << "without step " << id << " of\n" << to_string(good[rank]);
        }
      }
    }
  }
}

/// … and whatever signal is dropped at both ends, or whatever dependency.
TEST(EveryStepCounts, DroppingAnySignalOrDependencyIsCaught) {
  const Layout layout(std::vector{0, 1, 0, 1, 2});
  const Layout one_node = Layout::blocks(1, 4);
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == Collective::send || algorithm.collective == Collective::recv) continue;
    const Layout& l = algorithm.name == "direct" ? one_node : layout;
    for (const Limits& limits : {kShortIsEager, kNothingEager}) {
      const Request request{.collective = algorithm.collective, .count = 100, .root = 1};
      if (!algorithm.fits(request, l, limits).ok()) continue;
      const std::vector<Plan> good = make_all(algorithm, request, l, limits);
      const auto expect_caught = [&](const std::vector<Plan>& broken, int rank, StepId id, const char* what) {
        const bool caught = !verify(broken, l, limits, false).ok() || !verify(broken, l, limits, true).ok();
        EXPECT_TRUE(caught) << "without " << what << " of step " << id << " of\n" << to_string(good[rank]);
      };
      for (int rank = 0; rank < l.ranks(); ++rank) {
        for (StepId id = 0; id < good[rank].steps.size(); ++id) {
          const Step& step = good[rank].steps[id];
          if (step.kind == StepKind::signal) {
            std::vector<Plan> broken = good;
            drop_signal(broken, rank, id);
            expect_caught(broken, rank, id, "the notification");
          }
          for (StepId named : good[rank].after(step)) {
            std::vector<Plan> broken = good;
            const auto all = good[rank].after(step);
            std::vector<StepId> rest(all.begin(), all.end());
            std::erase(rest, named);
            set_after(broken[rank], id, rest);
            expect_caught(broken, rank, id, "a dependency");
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::plan
