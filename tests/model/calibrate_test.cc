// Calibration: costs that were put into the model come out of what the model then predicts.
#include "model/calibrate.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/tuner.h"

namespace weft::model {
namespace {

// What the model predicts for an AllReduce of 4 bytes by an algorithm.
double predicted_us(const Machine& machine, const char* algorithm, const topology::Layout& layout) {
  plan::Request request;
  request.collective = plan::Collective::all_reduce;
  request.count = 1;
  request.element_bytes = 4;
  const auto pins = parse_pins(std::string("allreduce=") + algorithm);
  const auto choice = choose(machine, request, layout, limits_for(machine), *pins);
  return choice.ok() ? choice->predicted_us : 0;
}

// What a collective takes in a streak, by an algorithm, on `truth` and on others.
Observation call_of(const Machine& truth, plan::Collective collective, uint64_t count, const char* algorithm,
                    const topology::Layout& layout) {
  const auto predicted = [=](const Machine& machine) {
    const plan::Request request{.collective = collective, .count = count, .element_bytes = 4};
    const auto* const found = plan::find_algorithm(collective, algorithm);
    return estimate(*found, request, layout, machine, limits_for(machine), Calls::streak)->us;
  };
  return {predicted(truth), predicted};
}

std::vector<Observation> observations(const Machine& truth, const topology::Layout& layout,
                                      std::vector<const char*> algorithms) {
  std::vector<Observation> seen;
  for (const char* algorithm : algorithms)
    seen.push_back({predicted_us(truth, algorithm, layout),
                    [=](const Machine& machine) { return predicted_us(machine, algorithm, layout); }});
  return seen;
}

TEST(Calibrate, FindsWhatACallTakes) {
  Machine truth;
  truth.call_us = 0.11;
  const auto seen = observations(truth, topology::Layout({0, 0}), {"one_hop", "ring"});
  EXPECT_NEAR(calibrate_call(Machine(), seen).call_us, 0.11, 0.005);
}

TEST(Calibrate, ARowTellsOverheadFromTheWayOfAMessage) {
  const topology::Layout layout({0, 0});
  Machine truth;
  truth.call_us = 0.04;
  truth.intra.overhead_us *= 0.6;
  truth.intra.alpha_us += 2 * (Machine().intra.overhead_us - truth.intra.overhead_us);
  const auto seen = observations(truth, layout, {"one_hop", "recursive_doubling", "ring"});
  const Observation streak = call_of(truth, plan::Collective::broadcast, 1, "ring", layout);
  const Machine found = calibrate_call(Machine(), seen, {&streak, 1});
  EXPECT_NEAR(found.intra.overhead_us, truth.intra.overhead_us, 0.002);
  EXPECT_NEAR(found.intra.alpha_us, truth.intra.alpha_us, 0.004);
  EXPECT_NEAR(found.call_us, 0.04, 0.005);
}

TEST(Calibrate, FindsWhatReadingFromAPeerTakes) {
  const topology::Layout layout({0, 0, 0, 0});
  Machine truth;
  truth.cores = 2;
  truth.memory.peer_us = 2.4;
  Machine alone = truth;
  alone.memory.peer_us = 0.9;
  const Observation seen = call_of(truth, plan::Collective::all_gather, 1, "direct", layout);
  EXPECT_NEAR(calibrate_reads(alone, seen).memory.peer_us, 2.4, 0.05);
  alone.memory.peer_us = 3;
  EXPECT_EQ(calibrate_reads(alone, seen).memory.peer_us, 3) << "no less than alone";
}

TEST(Calibrate, FindsWhatCachesHoldAndWhatLongDataCosts) {
  const topology::Layout layout({0, 0, 0, 0});
  Machine stated;
  stated.cores = 2;
  Machine truth = stated;
  truth.memory.cache_bytes = 512 << 10;
  truth.memory.large_bytes = 64 << 20;
  truth.memory.peer_reduced /= 2;
  truth.memory.mapped_cached /= 1.5;
  truth.memory.mapped_large /= 1.5;
  LongObservations seen;
  for (const uint64_t count : {16 << 10, 256 << 10}) {
    seen.read.push_back(call_of(truth, plan::Collective::all_gather, count, "direct", layout));
    seen.reduced.push_back(call_of(truth, plan::Collective::reduce_scatter, count, "direct", layout));
    seen.handed_over.push_back(call_of(truth, plan::Collective::reduce_scatter, count, "ring", layout));
  }
  const Memory found = calibrate_memory(stated, seen).memory;
  EXPECT_EQ(found.cache_bytes, truth.memory.cache_bytes);
  EXPECT_EQ(found.large_bytes, truth.memory.large_bytes);
  EXPECT_DOUBLE_EQ(found.peer_reduced, truth.memory.peer_reduced);
  EXPECT_DOUBLE_EQ(found.mapped_cached, truth.memory.mapped_cached);
  EXPECT_EQ(calibrate_memory(stated, {}).memory.cache_bytes, stated.memory.cache_bytes);
}

TEST(Calibrate, FindsWhatAWaitTakesWhereRanksShareCores) {
  Machine truth;
  truth.cores = 2;
  truth.switch_us = 1.3;
  const auto seen =
      observations(truth, topology::Layout({0, 0, 0, 0}), {"one_hop", "recursive_doubling", "ring"});
  EXPECT_NEAR(calibrate_crowd(Machine(truth), &Machine::intra, seen).switch_us, 1.3, 0.2);
}

TEST(Calibrate, FindsWhatACallTakesWhereRanksShareCores) {
  const topology::Layout layout({0, 0, 0, 0});
  Machine truth;
  truth.cores = 2;
  truth.switch_us = 0.6;
  truth.call_us = 0.05;
  truth.intra.overhead_us *= 0.7;
  const auto seen = observations(truth, layout, {"one_hop", "recursive_doubling", "ring"});
  const Observation streak = call_of(truth, plan::Collective::broadcast, 1, "ring", layout);
  Machine stated;
  stated.cores = 2;
  const Machine found = calibrate_crowd(stated, &Machine::intra, seen, {&streak, 1});
  EXPECT_NEAR(found.call_us, 0.05, 0.01);
  EXPECT_NEAR(found.switch_us, 0.6, 0.06);
  EXPECT_NEAR(found.intra.overhead_us, truth.intra.overhead_us, 0.003);
}

TEST(Calibrate, TellsDearMessagesFromDearWaits) {
  Machine stated;
  stated.cores = 0.5;  // four nodes on two cores
  Machine truth = stated;
  truth.inter.overhead_us = 3 * stated.inter.overhead_us;
  truth.switch_us = 4;
  const auto seen =
      observations(truth, topology::Layout({0, 1, 2, 3}), {"one_hop", "recursive_doubling", "ring"});
  const Machine found = calibrate_crowd(stated, &Machine::inter, seen);
  EXPECT_NEAR(found.inter.overhead_us, truth.inter.overhead_us, 0.01);
  EXPECT_NEAR(found.switch_us, 4, 0.5);
}

// With exchanges alone messages could only be dearer than quick ones had been, and turns made up for that.
TEST(Calibrate, HopsOneWayTellCheapMessagesFromQuickTurns) {
  Machine stated;
  stated.cores = 0.5;
  Machine truth = stated;
  truth.inter.overhead_us = 0.7 * stated.inter.overhead_us;
  truth.switch_us = 4;
  const auto seen = observations(truth, topology::Layout({0, 1, 2, 3}),
                                 {"recursive_doubling", "one_hop", "double_tree", "all_to_all"});
  const Machine found = calibrate_crowd(stated, &Machine::inter, seen);
  EXPECT_NEAR(found.inter.overhead_us / truth.inter.overhead_us, 1, 0.2) << "what it tries is not so fine";
  EXPECT_NEAR(found.switch_us, 4, 1);
  const Machine undecided = calibrate_crowd(stated, &Machine::inter, std::span(seen).subspan(0, 2));
  EXPECT_GE(undecided.inter.overhead_us, stated.inter.overhead_us);
}

TEST(Calibrate, OneObservationChangesTheWaitOnly) {
  Machine stated;
  stated.cores = 0.5;
  Machine truth = stated;
  truth.inter.overhead_us *= 2;
  const auto seen = observations(truth, topology::Layout({0, 1, 2, 3}), {"ring"});
  EXPECT_EQ(calibrate_crowd(stated, &Machine::inter, seen).inter.overhead_us, stated.inter.overhead_us);
  const Observation streak{0.1, [](const Machine& machine) { return machine.call_us; }};
  EXPECT_EQ(calibrate_crowd(stated, &Machine::inter, seen, {&streak, 1}).inter.overhead_us,
            stated.inter.overhead_us)
      << "two observations of three unknowns";
}

TEST(Calibrate, RowsTellWhatMessagesBetweenNodesCostTheirSender) {
  const topology::Layout layout({0, 1, 2, 3});
  Machine stated;
  stated.cores = 0.5;
  stated.inter.sending_us = 1.2;
  stated.inter.behind_us = 0.3;
  Machine truth = stated;
  truth.switch_us = 1.3;
  truth.inter.sending_us = 3;
  truth.inter.behind_us = 1.2;
  truth.inter.overhead_us = (3 + 2.4) / 2;
  const auto seen = observations(truth, layout, {"one_hop", "recursive_doubling", "ring"});
  const std::vector<Observation> streaks{call_of(truth, plan::Collective::broadcast, 1, "ring", layout),
                                         call_of(truth, plan::Collective::broadcast, 1, "one_hop", layout)};
  const Machine found = calibrate_crowd(stated, &Machine::inter, seen, streaks);
  EXPECT_NEAR(found.inter.sending_us, 3, 0.15);
  EXPECT_DOUBLE_EQ(found.inter.behind_us, 0.3) << "in these streaks no messages share writes";
  EXPECT_NEAR(receiving_us(found.inter), 2.4, 0.5);
  EXPECT_NEAR(found.switch_us, 1.3, 0.5);
}

TEST(Calibrate, RowsTellWhatMessagesThatShareWritesCost) {
  const topology::Layout layout({0, 1, 2, 3});
  Machine stated;
  stated.cores = 0.5;
  stated.inter.behind_us = 0.1;
  stated.inter.gathered_us = 0.2;
  Machine truth = stated;
  truth.inter.behind_us = 0.4;
  truth.inter.gathered_us = 0.35;
  const std::vector<Observation> streaks{call_of(truth, plan::Collective::broadcast, 1, "ring", layout),
                                         call_of(truth, plan::Collective::broadcast, 1, "one_hop", layout)};
  const Machine found = calibrate_gathered(stated, streaks);
  EXPECT_NEAR(found.inter.gathered_us, 0.35, 0.02);
  EXPECT_DOUBLE_EQ(found.inter.behind_us, 0.4);
  EXPECT_DOUBLE_EQ(found.inter.overhead_us, stated.inter.overhead_us);
  EXPECT_DOUBLE_EQ(calibrate_gathered(stated, {}).inter.gathered_us, 0.2);
  stated.inter.gathered_us = 0;
  EXPECT_DOUBLE_EQ(calibrate_gathered(stated, streaks).inter.gathered_us, 0) << "there is nothing to gather";
}

TEST(Calibrate, WholeOperationsTellWhatReceivingTakesWhereACallIsKnown) {
  const topology::Layout layout({0, 1});
  Machine truth;
  truth.call_us = 0.05;
  truth.inter.sending_us = 2;
  truth.inter.overhead_us = (2 + 3.5) / 2;
  Machine stated = truth;
  stated.inter.overhead_us = (2 + 0.4) / 2;
  const Machine found = calibrate_receiving(stated, observations(truth, layout, {"one_hop", "ring"}));
  EXPECT_NEAR(receiving_us(found.inter), 3.5, 0.05);
  EXPECT_DOUBLE_EQ(sending_us(found.inter), 2);
  EXPECT_DOUBLE_EQ(found.call_us, 0.05);
}

TEST(Calibrate, AbsurdTimesStayWithinBounds) {
  Machine stated;
  stated.cores = 0.5;
  auto seen = observations(stated, topology::Layout({0, 1, 2, 3}), {"ring", "one_hop"});
  for (Observation& one : seen) one.measured_us = 1e9;
  EXPECT_LE(calibrate_crowd(stated, &Machine::inter, seen).switch_us, 50);
  for (Observation& one : seen) one.measured_us = 1e-9;
  EXPECT_GE(calibrate_crowd(stated, &Machine::inter, seen).switch_us, 0.2);
  EXPECT_EQ(calibrate_crowd(stated, &Machine::inter, {}).switch_us, stated.switch_us);
}

}  // namespace
}  // namespace weft::model
