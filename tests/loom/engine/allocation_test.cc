// A step after the first allocates nothing: not Loom, not the library of products, not what reads its batch;
// and Weft below it little. What loads and saves a model needs no memory beside it that is as large as a
// unit.
#include <barrier>

#include "../../allocations.h"
#include "engine/ranks.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

#ifdef WEFT_COUNTS_ALLOCATIONS
using weft::testing::AllocationCounter;
using weft::testing::Allocations;

/// What all ranks together allocate in each of the steps [from, to).
std::vector<Allocations> allocations_of(const program::Job& job, int threads, int from, int to,
                                        int nodes = 1) {
  std::barrier together(job.world);
  std::vector<Allocations> counts;
  on_ranks(job.world, nodes, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {.threads = threads});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    const bool first = groups->rank() == 0;
    for (int step = 0; step < to; ++step) {
      fill_batch(**engine, *groups, step);
      together.arrive_and_wait();
      if (first) AllocationCounter::begin();
      together.arrive_and_wait();
      const Result<engine::StepResult> result = (*engine)->step(settings_of(step));
      together.arrive_and_wait();
      if (first) {
        const Allocations counted = AllocationCounter::end();
        if (step >= from) counts.push_back(counted);
      }
      together.arrive_and_wait();  // the last step counts nothing of another rank's end
      LOOM_ASSERT_OK(result);
    }
  });
  return counts;
}

std::vector<int64_t> of_loom(const std::vector<Allocations>& counts) {
  std::vector<int64_t> values;
  for (const Allocations& each : counts) values.push_back(each.program);
  return values;
}
std::vector<int64_t> of_weft(const std::vector<Allocations>& counts) {
  std::vector<int64_t> values;
  for (const Allocations& each : counts) values.push_back(each.weft);
  return values;
}
std::vector<int64_t> of_all(const std::vector<Allocations>& counts) {
  std::vector<int64_t> values;
  for (const Allocations& each : counts) values.push_back(each.all());
  return values;
}

TEST(Allocation, CountsWhatIsAllocatedByWhoAllocates) {
  AllocationCounter::begin();
  void* volatile memory = std::malloc(100);
  char* volatile by_a_library = ::strdup("another caller of malloc");
  Allocations counted = AllocationCounter::end();
  std::free(memory);
  std::free(by_a_library);
  EXPECT_EQ(counted.program, 2);
  EXPECT_EQ(counted.weft, 0);
  EXPECT_EQ(counted.largest_bytes, 100);
  weftStream_t stream = nullptr;
  AllocationCounter::begin();
  ASSERT_EQ(weftStreamCreate(&stream), weftSuccess);
  counted = AllocationCounter::end();
  EXPECT_EQ(weftStreamDestroy(stream), weftSuccess);
  EXPECT_EQ(counted.program, 0);
  EXPECT_GT(counted.weft, 0);
}

program::Job larger_job(int threads) {
  program::Job job = small_job(1, 1, 2, 2);
  job.tokens = job.spec.context = 64;
  job.spec.width = 256;
  job.spec.feed_forward = 1024;
  job.spec.vocabulary = 1000;
  job.checkpoint_group = threads;
  return job;
}

TEST(Allocation, NoneInAStepAfterTheFirstOfOneRank) {
  const std::vector<int64_t> none(5, 0);
  program::Job job = small_job(1, 1, 2, 4);
  job.spec.residual_dropout = job.spec.attention_dropout = 0.1f;
  EXPECT_EQ(of_all(allocations_of(job, 1, 1, 6)), none);
  EXPECT_EQ(of_all(allocations_of(larger_job(1), 1, 1, 6)), none);
}

TEST(Allocation, NoneInAStepAfterTheFirstOfTwoWorkers) {
  const std::vector<int64_t> none(20, 0);
  program::Job job = small_job(1, 1, 2, 4);
  job.precision = program::Precision::bf16;
  for (const program::Job& each : {job, larger_job(2)})
    EXPECT_EQ(of_all(allocations_of(each, 2, 1, 21)), none);
}

/// Weft keeps what a message or an operation needed for the next one, so it allocates while more are in
/// flight at once than ever before, which is a matter of time. So its number is bounded, well above what was
/// seen.
TEST(Allocation, NoneOfLoomsInAnyStepAfterTheFirstOfTwoRanks) {
  constexpr int kSteps = 40, kMostOfWeft = 10;  // a step
  for (const int nodes : {1, 2})
    for (const int degree : {1, 2})
      for (const bool strict : {false, true}) {
        program::Job job = small_job(2, degree, 4, 1);
        job.strict = strict;
        const std::string name = fmt::format("{} nodes, p {}{}", nodes, degree, strict ? ", strict" : "");
        const std::vector<Allocations> counts = allocations_of(job, 1, 1, kSteps, nodes);
        EXPECT_EQ(of_loom(counts), std::vector<int64_t>(kSteps - 1, 0)) << name;
        int64_t wefts = 0;
        for (const int64_t count : of_weft(counts)) wefts += count;
        fmt::print("{}: Weft allocated {} times in {} steps\n", name, wefts, kSteps - 1);
        EXPECT_LE(wefts, kMostOfWeft * (kSteps - 1)) << name << ::testing::PrintToString(of_weft(counts));
      }
}

/// Layouts whose ranks share a model, and a model whose embedding is nearly all of it.
struct Divided {
  int world, degree, pipeline, tensor;
};
constexpr Divided kDivided[] = {{1, 1, 1, 1}, {2, 2, 1, 1}, {4, 2, 1, 1}, {4, 2, 2, 1},
                                {2, 1, 1, 2}, {4, 2, 1, 2}, {4, 1, 2, 2}};

program::Job wide_vocabulary(const Divided& d) {
  program::Job job = small_job(d.world, d.degree, 1, 2);
  job.pipeline_degree = d.pipeline;
  job.tensor_degree = d.tensor;
  job.spec.vocabulary = 40000;
  return job;
}
constexpr int64_t kHalfAUnit = 40000 * 32 * 4 / 2;  // bytes

/// Bytes of the largest allocation of any rank while `action` is done on all.
int64_t largest_of(const Divided& divided, const EngineAction& action) {
  const program::Job job = wide_vocabulary(divided);
  std::barrier together(job.world);
  int64_t largest = 0;
  on_ranks(job.world, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    together.arrive_and_wait();
    if (groups->rank() == 0) AllocationCounter::begin();
    together.arrive_and_wait();
    const Status done = action(**engine, *groups);
    together.arrive_and_wait();
    if (groups->rank() == 0) largest = AllocationCounter::end().largest_bytes;
    LOOM_ASSERT_OK(done);
  });
  return largest;
}

std::string name_of(const Divided& d) {
  return fmt::format("{} ranks, p {}, P {}, T {}", d.world, d.degree, d.pipeline, d.tensor);
}

TEST(Allocation, NothingAsLargeAsAUnitWhileAModelIsSaved) {
  std::string of_one_rank;
  for (const Divided& divided : kDivided) {
    const TemporaryFolder folder;
    const auto save = [&](engine::Engine& engine, const engine::Groups&) {
      return engine.save_model(folder.path());
    };
    EXPECT_LT(largest_of(divided, save), kHalfAUnit) << name_of(divided);
    const std::string file = get_file(folder / "model.safetensors");
    if (of_one_rank.empty()) of_one_rank = file;
    EXPECT_TRUE(file == of_one_rank) << name_of(divided) << ": another model";
  }
}

TEST(Allocation, NothingAsLargeAsAUnitWhileAModelIsLoaded) {
  const TemporaryFolder folder;
  largest_of({1, 1, 1, 1},
             [&](engine::Engine& engine, const engine::Groups&) { return engine.save_model(folder.path()); });
  for (const Divided& divided : kDivided) {
    const auto load = [&](engine::Engine& engine, const engine::Groups&) -> Status {
      const Result<format::SafetensorsReader> file = format::SafetensorsReader::open(folder.path());
      LOOM_TRY(file.status());
      return engine.load_model(*file);
    };
    EXPECT_LT(largest_of(divided, load), kHalfAUnit) << name_of(divided);
  }
}

/// Steps of whole runs, which read their batches.
class RunAllocation : public Runs {
 protected:
  std::vector<int64_t> allocations_of_steps() {
    std::vector<int64_t> counts;
    config_.run.steps = 100;
    const Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
    EXPECT_TRUE(trainer.ok()) << sentence(trainer);
    for (int step = 0; trainer.ok() && step < 8; ++step) {
      AllocationCounter::begin();
      const bool right = (*trainer)->step().ok();
      const Allocations counted = AllocationCounter::end();
      EXPECT_TRUE(right);
      // In the first two, memory is looked at as well.
      if (step >= 2) counts.push_back(counted.all());
    }
    return counts;
  }
  const std::vector<int64_t> none_ = std::vector<int64_t>(6, 0);
};

TEST_F(RunAllocation, NoneInAStepThatPredictsWhatComesNext) {
  make_tokens(config_.data.folder);
  EXPECT_EQ(allocations_of_steps(), none_);
}

TEST_F(RunAllocation, NoneInAStepThatPredictsWhatIsHidden) {
  make_tokens(config_.data.folder, fixture("wordpiece.json"));
  config_.model.family = "bert";
  config_.data.microbatch = 4;
  EXPECT_EQ(allocations_of_steps(), none_);
}
#endif

}  // namespace
}  // namespace loom::testing
