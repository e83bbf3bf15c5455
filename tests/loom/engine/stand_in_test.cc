// What is done in place of operators: each instruction that computes, in the program's order, and nothing
// else.
#include <array>

#include "engine/ranks.h"
#include "train/breakdown.h"

namespace loom::testing {
namespace {

TEST(StandIn, IsCalledForEachUnitInTheProgramsOrderAndMessagesAreReal) {
  program::Job job = small_job(4, 1, 6, 1);
  job.pipeline_degree = 4;
  std::atomic<int> called{0};
  on_ranks(4, 4, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(1));
    std::vector<std::tuple<program::Op, int, int>> done, wanted;
    (*engine)->stand_in(
        [&](const program::Instruction& i) { done.emplace_back(i.op, i.unit, i.microbatch); });
    weftCommStats_t before = WEFT_COMM_STATS_INITIALIZER, after = WEFT_COMM_STATS_INITIALIZER;
    ASSERT_EQ(weftCommGetStats(world, &before), weftSuccess);
    const Result<engine::StepResult> result = (*engine)->step(settings_of(0));
    LOOM_ASSERT_OK(result);
    LOOM_ASSERT_OK(groups->barrier());
    ASSERT_EQ(weftCommGetStats(world, &after), weftSuccess);
    EXPECT_EQ(result->loss, 0);
    EXPECT_EQ(result->gradient_norm, 0);
    for (const program::Instruction& i : (*engine)->training().instructions)
      if (program::is_compute(i.op)) wanted.emplace_back(i.op, i.unit, i.microbatch);
    EXPECT_EQ(done, wanted);
    called += static_cast<int>(done.size());
    const uint64_t message = static_cast<uint64_t>(job.rows() * job.spec.width * 4);
    EXPECT_GE(after.interBytes - before.interBytes, job.microbatches * message);
  });
  EXPECT_EQ(called, 6 * (2 * 4 + 1)) << "forward and backward of four units, and the loss";
}

// A rank used to wait for what it had just asked for in advance, too, so that nothing was hidden. Here rank 1
// asks for that only once rank 0 goes on.
TEST(StandIn, ComputingWaitsForNothingThatWasAskedForInAdvance) {
  const program::Job job = small_job(2, 2, 2, 2);
  std::atomic<int> begun{0};
  std::atomic<bool> late{false};
  on_ranks(2, 2, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(1));
    const bool ahead = groups->rank() == 0;
    int all = 0, mine = 0;
    for (const program::Instruction& i : (*engine)->training().instructions) all += program::is_compute(i.op);
    (*engine)->stand_in([&](const program::Instruction&) {
      ++mine;
      if (ahead) begun = mine;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!ahead && !late && begun < std::min(mine + 1, all)) {
        late = late || std::chrono::steady_clock::now() > limit;
        std::this_thread::yield();
      }
    });
    LOOM_ASSERT_OK((*engine)->step(settings_of(0)));
    EXPECT_EQ(mine, all);
  });
  EXPECT_FALSE(late);
}

// What ranks tell each other at the norm is waited for as any other message. Here the first stage is slow
// with its last backward, when the second has nothing left to do.
TEST(StandIn, WaitingForOtherStagesAtTheNormIsExposed) {
  program::Job job = small_job(2, 1, 2, 4);
  job.pipeline_degree = 2;
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> computed{false};
  double late_us = 0, waited_us = 0, exposed_us = 0;  // the second stage's clock is this process's, too
  on_ranks(2, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(1));
    const int stage = groups->coordinates().stage;
    const program::Program& program = (*engine)->training();
    int left = 0;
    for (const program::Instruction& i : program.instructions) left += program::is_compute(i.op);
    (*engine)->stand_in([&](const program::Instruction&) {
      if (--left > 0) return;
      if (stage == 1) {
        computed = true;
        return;
      }
      while (!computed) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      late_us = std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
    });
    const Result<engine::StepResult> result = (*engine)->step(settings_of(0));
    LOOM_ASSERT_OK(result);
    EXPECT_LE(result->met_seconds, result->exposed_seconds);
    EXPECT_LE(result->exposed_seconds, result->seconds);
    LOOM_ASSERT_OK(groups->barrier());
    if (stage == 0) return;
    for (size_t i = 0; i < program.instructions.size(); ++i)
      if (program.instructions[i].op == program::Op::norm)
        waited_us = late_us - result->begin_us - (*engine)->timeline()[i].begin_us;
    exposed_us = result->exposed_seconds * 1e6;
    const train::Breakdown without =
        train::breakdown_of(program, (*engine)->timeline(), result->seconds * 1e6, false);
    const train::Breakdown with = train::breakdown_of(program, (*engine)->timeline(), result->seconds * 1e6,
                                                      false, result->met_seconds * 1e6);
    EXPECT_DOUBLE_EQ(with.waiting_us, without.waiting_us + result->met_seconds * 1e6);
    EXPECT_EQ(with.us, without.us) << "norm and mean loss have their time already";
  });
  // Others may have come to the norm a little before.
  EXPECT_GE(exposed_us, 0.25 * waited_us);
}

/// Both stages ask for what their next pass needs before they compute this one, and the other begins to make
/// it only once they compute. With receives that are waited for when they are asked for nobody could go on.
TEST(StandIn, ComputingOverlapsReceivesThatWereAskedForInAdvance) {
  program::Job job = small_job(2, 1, 4, 2);
  job.pipeline_degree = 2;
  job.schedule = program::Schedule::simple;
  std::atomic<int> forward{0}, backward{0};  // microbatches that the last, and the first, stage has begun
  std::atomic<bool> late{false};
  std::array<int, 2> asked{};  // receives that were still asked for when the stage computed
  on_ranks(2, 2, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(1));
    const bool first = groups->coordinates().stage == 0;
    const auto wait_for = [&](const std::atomic<int>& begun, int microbatches) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!late && begun < microbatches) {
        late = late || std::chrono::steady_clock::now() > limit;
        std::this_thread::yield();
      }
    };
    (*engine)->stand_in([&](const program::Instruction& i) {
      if (i.op == program::Op::forward && first) wait_for(forward, i.microbatch);
      if (i.op == program::Op::forward && !first) forward = i.microbatch + 1;
      if (i.op == program::Op::loss) wait_for(backward, i.microbatch);
      if (i.op == program::Op::backward && first) backward = i.microbatch + 1;
    });
    const std::vector<program::Instruction>& list = (*engine)->training().instructions;
    int ahead = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const bool receives = list[i].op == program::Op::receive || list[i].op == program::Op::receive_back;
      for (size_t next = i + 1; receives && next < list.size(); ++next) {
        if (!program::is_compute(list[next].op)) continue;
        ahead += list[next].microbatch < list[i].microbatch;
        break;
      }
    }
    asked[static_cast<size_t>(groups->coordinates().stage)] = ahead;
    LOOM_ASSERT_OK((*engine)->step(settings_of(0)));
  });
  EXPECT_FALSE(late);
  EXPECT_EQ(asked, (std::array{3, 3})) << "receives that computing of the microbatch before stands behind";
}

}  // namespace
}  // namespace loom::testing
