// A step after the first allocates nothing: not Loom, not Weft below it, not the library of products, and not
// what reads its batch. Counted
// by standing in front of the C library's functions, for all threads of the process.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdint>

#include "engine/ranks.h"
#include "train/runs.h"

// Sanitizers stand there themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define LOOM_COUNTS_ALLOCATIONS 1

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> largest{0};  // bytes

void note(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  allocations.fetch_add(1, std::memory_order_relaxed);
  for (int64_t most = largest; most < static_cast<int64_t>(bytes);)
    if (largest.compare_exchange_weak(most, static_cast<int64_t>(bytes))) break;
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  note(bytes);
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  note(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
}
#endif

namespace loom::testing {
namespace {

#ifdef LOOM_COUNTS_ALLOCATIONS
/// What all ranks together allocate in each of the steps [from, to).
std::vector<int64_t> allocations_of(const program::Job& job, int threads, int from, int to) {
  std::barrier together(job.world);
  std::vector<int64_t> counts;
  on_ranks(job.world, 1, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, threads);
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(3));
    const bool first = groups->rank() == 0;
    if (first) counts.reserve(static_cast<size_t>(to));
    for (int step = 0; step < to; ++step) {
      fill_batch(**engine, *groups, step);
      if (first) allocations = 0;
      together.arrive_and_wait();
      if (first) counting = true;
      together.arrive_and_wait();
      const Result<engine::StepResult> result = (*engine)->step(settings_of(step));
      together.arrive_and_wait();
      if (first) counting = false;
      LOOM_ASSERT_OK(result);
      if (first && step >= from) counts.push_back(allocations);
    }
  });
  return counts;
}

TEST(Allocation, CountsWhatIsAllocated) {
  allocations = 0;
  counting = true;
  void* volatile memory = std::malloc(100);
  counting = false;
  std::free(memory);
  EXPECT_EQ(allocations, 1);
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
  EXPECT_EQ(allocations_of(job, 1, 1, 6), none);
  EXPECT_EQ(allocations_of(larger_job(1), 1, 1, 6), none);
}

TEST(Allocation, NoneInAStepAfterTheFirstOfTwoWorkers) {
  const std::vector<int64_t> none(20, 0);
  program::Job job = small_job(1, 1, 2, 4);
  job.precision = program::Precision::bf16;
  for (const program::Job& each : {job, larger_job(2)}) EXPECT_EQ(allocations_of(each, 2, 1, 21), none);
}

/// Weft keeps what a message or an operation needed for the next one, so it allocates while more are in
/// flight at once than ever before, which is a matter of time. What comes with every step would show in all.
TEST(Allocation, NoneInStepsOfTwoRanksOverSharedMemory) {
  for (const bool strict : {false, true})
    for (const int degree : {1, 2}) {
      program::Job job = small_job(2, degree, 4, 1);
      job.strict = strict;
      const std::vector<int64_t> counts = allocations_of(job, 1, 1, 60);
      EXPECT_GE(std::count(counts.begin() + 20, counts.end(), 0), 30)
          << "degree " << degree << ": " << ::testing::PrintToString(counts);
    }
}

/// Units are gathered where steps have what they need only then, by the ranks that have the model once, and
/// are put in order a part at a time.
TEST(Allocation, NothingAsLargeAsAUnitWhileAModelIsSaved) {
  for (const auto& [world, degree, pipeline] : {std::tuple{1, 1, 1}, {2, 2, 1}, {4, 2, 1}, {4, 2, 2}}) {
    program::Job job = small_job(world, degree, 1, 2);
    job.pipeline_degree = pipeline;
    job.spec.vocabulary = 40000;
    std::barrier together(job.world);
    const TemporaryFolder folder;
    on_ranks(job.world, 1, [&](weftComm_t world) {
      const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict);
      LOOM_ASSERT_OK(groups);
      const auto engine = engine::Engine::create(job, *groups, 1);
      LOOM_ASSERT_OK(engine);
      LOOM_ASSERT_OK((*engine)->initialize(3));
      together.arrive_and_wait();
      if (groups->rank() == 0) largest = 0, counting = true;
      together.arrive_and_wait();
      const Status saved = (*engine)->save_model(folder.path());
      together.arrive_and_wait();
      if (groups->rank() == 0) counting = false;
      LOOM_ASSERT_OK(saved);
    });
    EXPECT_LT(largest, 40000 * 32 * 4 / 2) << fmt::format("{} ranks, p {}, P {}", world, degree, pipeline);
  }
}

/// Steps of whole runs, which read their batches.
class RunAllocation : public Runs {
 protected:
  std::vector<int64_t> allocations_of_steps() {
    std::vector<int64_t> counts;
    counts.reserve(8);
    config_.run.steps = 100;
    const Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
    EXPECT_TRUE(trainer.ok()) << sentence(trainer);
    for (int step = 0; trainer.ok() && step < 8; ++step) {
      allocations = 0;
      counting = true;
      const bool right = (*trainer)->step().ok();
      counting = false;
      EXPECT_TRUE(right);
      // In the first two, memory is looked at as well.
      if (step >= 2) counts.push_back(allocations);
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
