// What saves memory costs no bit of any family's losses: blocks that are computed again, activations that
// were in a file, and both, of blocks of every kind.
#include "engine/families.h"

namespace loom::testing {
namespace {

struct Saving {
  const char* name;
  int group, every;
  bool offload;
};
constexpr Saving kSavings[] = {{"each", 1, 1, false},
                               {"group_2", 2, 1, false},
                               {"every_2", 1, 2, false},
                               {"offloading", 0, 1, true},
                               {"each, offloading", 1, 1, true}};

program::Job job_of(model::Family family, int stages) {
  program::Job job = small_job(stages, 1, 2, 2);
  job.spec.layers = 4;
  job.spec = family_spec(family, model::usual_task(family), job.spec);
  job.spec.residual_dropout = job.spec.attention_dropout = job.spec.embedding_dropout = 0.1f;
  model::complete(job.spec);
  job.pipeline_degree = stages;
  return job;
}

TEST(FamilyMemory, CheckpointingAndOffloadingChangeNoBitOfAnyFamily) {
  for (const model::Family family : kEveryFamily)
    for (const int stages : {1, 2}) {
      const std::vector<double> plain = train(job_of(family, stages), 0, 3);
      EXPECT_NE(plain[2], plain[0]);
      for (const Saving& saving : kSavings) {
        SCOPED_TRACE(fmt::format("{}, {} stages, {}", model::family_name(family), stages, saving.name));
        program::Job job = job_of(family, stages);
        job.checkpoint_group = saving.group;
        job.checkpoint_every = saving.every;
        job.offload = saving.offload;
        job.loading_horizon = 1;
        EXPECT_EQ(train(job, 0, 3, {},
                        [&](engine::Engine& engine, const engine::Groups&) -> Status {
                          EXPECT_TRUE(stages == 2 || (engine.memory().tier_bytes > 0) == saving.offload);
                          return {};
                        }),
                  plain);
      }
    }
}

}  // namespace
}  // namespace loom::testing
