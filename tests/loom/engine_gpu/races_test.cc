// Ranks that share a GPU: what on it comes after what, by the fake driver's vector clocks. A wait is left out
// on purpose, one after the other.
#include <barrier>

#include "engine_gpu/on_fake_gpus.h"

namespace loom::testing::races_test {
namespace {

class GpuRaces : public OnFakeGpus {
 protected:
  static constexpr int kEvery = 2;  // wait

  struct Found {
    int waits = 0;     // of streams for events, in a step of both ranks
    int left_out = 0;  // of these, one in a step
    int races = 0;
  };

  /// What is found in steps of two ranks, in each of which another wait is left out. Not every wait
  /// that is left out is found: another one may stand for it, and the host's one clock may hide it.
  Found leave_out_some(const program::Job& job) {
    Found found;
    std::barrier both(2);
    on_ranks(2, 1, [&](weftComm_t world) {
      const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict, 0);
      LOOM_ASSERT_OK(groups);
      const auto engine = engine::Engine::create(job, *groups, {.gpu = 0});
      LOOM_ASSERT_OK(engine);
      const bool first = groups->rank() == 0;
      for (int left_out = 0; left_out <= found.waits; left_out += kEvery) {
        LOOM_ASSERT_OK((*engine)->initialize(3));
        fill_batch(**engine, *groups, 0);
        both.arrive_and_wait();
        const uint64_t before = fake.calls("cuStreamWaitEvent");
        if (first) {
          (void)fake.race();  // waits for what is queued
          fake.follow_races(1);
          fake.leave_out_wait(static_cast<uint64_t>(left_out));
        }
        both.arrive_and_wait();
        const Status made = (*engine)->step(settings_of(0)).status();
        EXPECT_TRUE(made.ok() || made.code() == Code::not_finite) << made.message();
        both.arrive_and_wait();
        if (first) {
          const std::string race = fake.race();
          if (left_out == 0) {
            EXPECT_EQ(race, "") << "nothing is left out";
            found.waits = static_cast<int>(fake.calls("cuStreamWaitEvent") - before);
          } else {
            ++found.left_out;
            found.races += race.empty() ? 0 : 1;
          }
          fake.leave_out_wait(0);
        }
        both.arrive_and_wait();
      }
    });
    return found;
  }
};

TEST_F(GpuRaces, AMissingWaitBesideShardsIsFound) {
  const Found found = leave_out_some(tiny_job(2, 2));
  EXPECT_EQ(found.waits, 32);
  EXPECT_EQ(found.left_out, found.waits / kEvery);
  EXPECT_GE(found.races, 8) << "of " << found.left_out;
}

/// Each exchange is of what was just computed, and is needed at once. So nearly every wait counts.
TEST_F(GpuRaces, AMissingWaitBesideTensorRanksIsFound) {
  program::Job job = tiny_job();
  job.world = job.tensor_degree = 2;
  const Found found = leave_out_some(job);
  EXPECT_EQ(found.waits, 44);
  EXPECT_EQ(found.left_out, found.waits / kEvery);
  EXPECT_GE(found.races, 20) << "of " << found.left_out;
}

}  // namespace
}  // namespace loom::testing::races_test
