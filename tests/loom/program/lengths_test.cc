// Long programs: what planning them is made of, against plain ways of saying the same, and that it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "program/generate.h"
#include "program/microbatch_counts.h"
#include "program/occupancy.h"
#include "program/verify.h"
#include "support.h"

namespace loom::testing {
namespace {

using namespace program;

TEST(Occupancy, FindsTheLowestPlaceThatAListOfBuffersLeaves) {
  struct Taken {
    Lifetime lifetime;
    int64_t begin, end;
  };
  std::mt19937 random(7);
  for (const int64_t instructions : {1, 2, 37, 64}) {
    Occupancy occupancy(static_cast<size_t>(instructions));
    std::vector<Taken> list;
    for (int b = 0; b < 200; ++b) {
      const int64_t begin = static_cast<int64_t>(random()) % instructions;
      const int64_t end = 2 * begin + 1 + static_cast<int64_t>(random()) % (2 * (instructions - begin));
      const Lifetime lifetime{2 * begin, end};
      const int64_t bytes = static_cast<int64_t>(random() % 9), floor = 3;
      int64_t wanted = floor;
      const auto in_the_way = [&](const Taken& one) {
        return one.lifetime.overlaps(lifetime) && one.begin < wanted + bytes && wanted < one.end;
      };
      while (std::any_of(list.begin(), list.end(), in_the_way)) ++wanted;
      EXPECT_EQ(occupancy.lowest(lifetime, bytes, floor), wanted) << b << " of " << instructions;
      occupancy.add(lifetime, wanted, wanted + bytes);
      list.push_back({lifetime, wanted, wanted + bytes});
    }
  }
}

TEST(MicrobatchCounts, AreThoseOfAList) {
  std::mt19937 random(3);
  constexpr int kMicrobatches = 9;
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<MicrobatchCounts> sums;
    std::vector<std::vector<int>> lists;
    for (int m = 0; m < kMicrobatches; ++m) {
      sums.emplace_back(m);
      lists.emplace_back(kMicrobatches, 0).at(static_cast<size_t>(m)) = 1;
    }
    for (int add = 0; add < 8; ++add) {
      const size_t into = random() % sums.size(), from = random() % sums.size();
      const MicrobatchCounts more = sums[from];
      sums[into].add(more);
      const std::vector<int> numbers = lists[from];
      for (size_t m = 0; m < numbers.size(); ++m) lists[into][m] += numbers[m];
    }
    for (size_t k = 0; k < sums.size(); ++k) {
      int wrong = -1;
      for (int m = kMicrobatches; m-- > 0;) {
        EXPECT_EQ(sums[k].of(m), lists[k][static_cast<size_t>(m)]);
        if (lists[k][static_cast<size_t>(m)] != 1) wrong = m;
      }
      EXPECT_EQ(sums[k].first_that_is_not_once(kMicrobatches), wrong);
      for (size_t other = 0; other < sums.size(); ++other)
        EXPECT_EQ(sums[k] == sums[other], lists[k] == lists[other]);
    }
  }
  MicrobatchCounts all;
  for (int m = 0; m < 5; ++m) all.add(MicrobatchCounts(m));
  EXPECT_EQ(all.first_that_is_not_once(5), -1);
  EXPECT_EQ(all.first_that_is_not_once(6), 5);
}

/// One rank with so many microbatches.
Job long_job(int microbatches) {
  Job job;
  job.spec.vocabulary = 40;
  job.spec.context = 4;
  job.spec.width = 32;
  job.spec.layers = 12;
  job.spec.heads = 4;
  job.spec.feed_forward = 64;
  job.tokens = 4;
  job.microbatches = microbatches;
  return job;
}

/// What is in use while each instruction runs, added up again for each.
int64_t plain_peak(const Program& program) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(program);
  int64_t most = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(program.instructions.size()); ++i) {
    int64_t bytes = 0;
    for (size_t b = 0; b < program.buffers.size(); ++b)
      if (!program.buffers[b].in_tier && lifetimes[b].overlaps({2 * i, 2 * i + 1}))
        bytes += program.buffers[b].bytes;
    most = std::max(most, bytes);
  }
  return most;
}

TEST(LongPrograms, ThousandsOfMicrobatchesArePlannedAsTwentyAre) {
  for (const bool sheds : {false, true}) {
    const auto planned = [&](int microbatches, bool plainly) {
      Job job = long_job(microbatches);
      job.checkpoint_group = sheds ? 2 : 0;
      job.offload = sheds;
      const Result<Program> program = make_program(job, 0);
      EXPECT_TRUE(program.ok());
      const MemoryPlan plan = plan_memory(*program);
      EXPECT_TRUE(verify(job, *program, plan).ok());
      if (plainly) {
        EXPECT_EQ(plan.peak_bytes, plain_peak(*program));
      }
      // Microbatches come one after the other, so that only what all have, their tokens, grows.
      return plan.peak_bytes - plan.peak[static_cast<size_t>(Category::batch)];
    };
    EXPECT_EQ(planned(3000, false), planned(20, true));
  }
}

/// That it ends: 8,192 layers took 100 s, and 65,536 are accepted. No clock is asked.
TEST(LongPrograms, TenThousandLayersArePlannedAndVerified) {
  struct Division {
    const char* name;
    int world, degree, stages, tensor;
    int checkpoint_group = 0;
    bool offload = false, optimizer_only = false;
  };
  for (const Division& division : {Division{"one rank", 1, 1, 1, 1},
                                   {"replicas", 2, 1, 1, 1},
                                   {"sharded", 2, 2, 1, 1},
                                   {"stages", 2, 1, 2, 1},
                                   {"tensor ranks", 2, 1, 1, 2},
                                   {"checkpointing", 1, 1, 1, 1, 2},
                                   {"offloading", 1, 1, 1, 1, 2, true},
                                   {"sharded optimizer", 2, 2, 1, 1, 0, false, true}}) {
    SCOPED_TRACE(division.name);
    Job job = long_job(2);
    job.batch = 2;
    job.spec.layers = 10'000;
    job.world = division.world;
    job.degree = division.degree;
    job.pipeline_degree = division.stages;
    job.tensor_degree = division.tensor;
    job.checkpoint_group = division.checkpoint_group;
    job.offload = division.offload;
    job.shard_optimizer_only = division.optimizer_only;
    if (division.stages > 1) job.first_units = {0, 5'000};
    const Result<std::vector<Program>> programs = make_programs(job);
    LOOM_ASSERT_OK(programs);
    LOOM_ASSERT_OK(verify_pipeline(*programs));
    for (const Program& program : *programs) LOOM_ASSERT_OK(verify(job, program, plan_memory(program)));
  }
}

}  // namespace
}  // namespace loom::testing
