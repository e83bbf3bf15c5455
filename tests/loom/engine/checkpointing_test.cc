// Activation checkpointing: whichever blocks are computed again, losses keep their bits, and memory is what
// was planned.
#include <map>

#include "engine/ranks.h"
#include "program/generate.h"
#include "program/memory.h"
#include "program/verify.h"

namespace loom::testing {
namespace {

struct Strategy {
  const char* name;
  int group, every;
  int recomputed;  // blocks of 5 on one stage
};
constexpr Strategy kStrategies[] = {{"none", 0, 1, 0},       {"each", 1, 1, 5},    {"group_2", 2, 1, 5},
                                    {"contiguous", 5, 1, 5}, {"every_2", 1, 2, 3}, {"every_4", 1, 4, 2}};

program::Job job_of(const Strategy& strategy, int stages) {
  program::Job job = small_job(stages, 1, 2, 2);
  job.spec.layers = 5;
  job.spec.residual_dropout = 0.1f;
  job.pipeline_degree = stages;
  job.checkpoint_group = strategy.group;
  job.checkpoint_every = strategy.every;
  return job;
}

TEST(Checkpointing, EveryStrategyHasTheSameLosses) {
  for (const int stages : {1, 2}) {
    const std::vector<double> wanted = train(job_of(kStrategies[0], stages), 0, 4);
    for (const Strategy& strategy : kStrategies)
      EXPECT_EQ(train(job_of(strategy, stages), 0, 4), wanted)
          << strategy.name << ", " << stages << " stages";
  }
}

TEST(Checkpointing, RecomputesWhatItSays) {
  std::map<std::string, int64_t> bytes;
  for (const Strategy& strategy : kStrategies) {
    program::Job job = job_of(strategy, 1);
    job.batch = 16;  // so that activations are most of the memory
    const Result<program::Program> program = program::make_program(job);
    LOOM_ASSERT_OK(program);
    const program::MemoryPlan memory = program::plan_memory(*program);
    LOOM_ASSERT_OK(program::verify(job, *program, memory));
    int recomputed = 0;
    for (const program::Instruction& i : program->instructions)
      if (i.op == program::Op::recompute && i.microbatch == 0) ++recomputed;
    EXPECT_EQ(recomputed, strategy.recomputed) << strategy.name;
    bytes[strategy.name] = memory.bytes;
  }
  EXPECT_LT(bytes["each"], bytes["every_2"]);
  EXPECT_LT(bytes["every_2"], bytes["every_4"]);
  EXPECT_LT(bytes["every_4"], bytes["none"]);
}

TEST(Checkpointing, GroupsOfSomeBlocksAreRefused) {
  program::Job job = job_of({"", 2, 2, 0}, 1);
  EXPECT_TRUE(fails_with(job.check(), Code::invalid_argument, "must be one of every so many, or groups"));
}

}  // namespace
}  // namespace loom::testing
