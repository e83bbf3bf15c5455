// Waits between the streams of a GPU: that those which are left out are not needed, and all others are.
#include <gtest/gtest.h>

#include "program/generate.h"
#include "program/verify.h"
#include "support.h"

namespace loom::testing::stream_waits_test {
namespace {

using namespace loom::program;  // everything here is about it

/// 12 blocks, as GPT-2 of 124M has, and 4 microbatches.
Job job_of(int degree, int replicas, int pipeline, int tensor, bool offload) {
  Job job;
  job.spec.vocabulary = 64;
  job.spec.context = job.tokens = 16;
  job.spec.width = 64;
  job.spec.layers = 12;
  job.spec.heads = 4;
  job.spec.feed_forward = 256;
  job.batch = 4;
  job.microbatches = 4;
  job.degree = degree;
  job.pipeline_degree = pipeline;
  job.tensor_degree = tensor;
  job.world = degree * replicas * pipeline * tensor;
  job.divides_rows = tensor > 1;
  job.offload = offload;
  return job;
}

struct Waits {
  int of_all = 0, issued = 0;
  bool operator==(const Waits&) const = default;
};
void PrintTo(const Waits& waits, std::ostream* stream) { *stream << waits.of_all << ", " << waits.issued; }

/// With a wait for everything that an instruction comes after, and one of every instruction on a lane; and
/// those that are issued.
Waits waits_of(const Program& program) {
  Waits waits;
  for (const Instruction& i : program.instructions) {
    waits.of_all += static_cast<int>(i.after.size()) + (i.lane > 0);
    waits.issued += static_cast<int>(i.events.size()) + i.joins;
  }
  return waits;
}

Waits waits_of(const Job& job) {
  Waits all;
  const std::vector<Program> programs = *make_programs(job);
  for (const Program& program : programs) {
    const Waits waits = waits_of(program);
    all.of_all += waits.of_all;
    all.issued += waits.issued;
  }
  return all;
}

TEST(StreamWaits, OfAStepAreCounted) {
  EXPECT_EQ(waits_of(job_of(8, 1, 1, 1, false)), (Waits{314, 304})) << "sharded over 8";
  EXPECT_EQ(waits_of(job_of(4, 2, 1, 1, false)), (Waits{342, 321})) << "4 shards, 2 replicas";
  EXPECT_EQ(waits_of(job_of(1, 1, 2, 1, false)), (Waits{32, 32})) << "2 stages";
  EXPECT_EQ(waits_of(job_of(1, 1, 1, 2, false)), (Waits{1028, 906})) << "2 tensor ranks";
  EXPECT_EQ(waits_of(job_of(1, 1, 1, 1, true)), (Waits{320, 160})) << "offloaded";
  EXPECT_EQ(waits_of(job_of(2, 2, 2, 2, true)), (Waits{1724, 1381})) << "all at once";
}

/// What the verifier says when a wait is left out, one after the other, of those in the program.
TEST(StreamWaits, EachThatIsIssuedIsNeeded) {
  for (const Job& job : {job_of(2, 2, 1, 1, true), job_of(1, 2, 2, 1, false), job_of(2, 1, 1, 2, false)}) {
    std::vector<Program> programs = *make_programs(job);
    for (Program& program : programs) {
      const MemoryPlan memory = plan_memory(program);
      LOOM_ASSERT_OK(verify(job, program, memory));
      const auto expect_found = [&] {
        EXPECT_TRUE(
            fails_with(verify(job, program, memory), Code::internal_error, " may begin before the end of "));
      };
      for (Instruction& i : program.instructions) {
        if (std::exchange(i.joins, false)) expect_found(), i.joins = true;
        const std::vector<int> events = i.events;
        for (size_t left_out = 0; left_out < events.size(); ++left_out) {
          i.events.erase(i.events.begin() + static_cast<ptrdiff_t>(left_out));
          expect_found();
          i.events = events;
        }
      }
    }
  }
}

/// An event of an older instruction does not stand for a younger one's.
TEST(StreamWaits, AWaitForTheWrongInstructionIsFound) {
  const Job job = job_of(2, 1, 1, 1, false);
  Program program = *make_program(job);
  const MemoryPlan memory = plan_memory(program);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    std::vector<int>& events = program.instructions[i].events;
    if (events.empty()) continue;
    const int right = events[0], lane = program.instructions[static_cast<size_t>(right)].lane;
    int older = right - 1;
    while (older >= 0 && program.instructions[static_cast<size_t>(older)].lane != lane) --older;
    if (older < 0) continue;
    events[0] = older;
    EXPECT_FALSE(verify(job, program, memory).ok()) << i;
    events[0] = right;
  }
}

}  // namespace
}  // namespace loom::testing::stream_waits_test
