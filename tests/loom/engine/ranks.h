// Training with ranks as threads: a small model on batches made up from the step's number.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "support.h"
#include "text/tokenizer.h"

namespace loom::testing {

/// Which pretended node each rank is on.
class Nodes {
 public:
  /// As many ranks on each, one node after the other.
  Nodes(int count) : count_(count) {}
  explicit Nodes(std::vector<int> of_ranks) : of_ranks_(std::move(of_ranks)) {}

  int of(int rank, int ranks) const {
    return of_ranks_.empty() ? rank * count_ / ranks : of_ranks_[static_cast<size_t>(rank)];
  }

 private:
  int count_ = 1;
  std::vector<int> of_ranks_;
};

/// Runs `body` on each of `ranks` ranks, threads of this process on pretended nodes; nullptr with one rank.
inline void on_ranks(int ranks, const Nodes& nodes, const std::function<void(weftComm_t)>& body,
                     const std::function<void(weftConfig_t&)>& configure = {}) {
  if (ranks == 1) return body(nullptr);
  weftUniqueId id;
  ASSERT_EQ(weftGetUniqueId(&id), weftSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const std::string node = "node" + std::to_string(nodes.of(rank, ranks));
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.hostId = node.c_str();
      config.timeoutSeconds = 120;
      if (configure) configure(config);
      weftComm_t comm = nullptr;
      ASSERT_EQ(weftCommInitRankConfig(&comm, ranks, id, rank, &config), weftSuccess)
          << weftGetLastError(nullptr);
      body(comm);
      EXPECT_EQ(weftCommDestroy(comm), weftSuccess);
    });
  for (std::thread& thread : threads) thread.join();
}

/// 8 sequences a step, however they are divided.
constexpr int kSequences = 8;

inline program::Job small_job(int world, int degree, int microbatches, int batch) {
  program::Job job;
  job.spec.vocabulary = 40;
  job.spec.context = 12;
  job.spec.width = 32;
  job.spec.layers = 3;
  job.spec.heads = 4;
  job.spec.feed_forward = 64;
  job.tokens = 12;
  job.world = world;
  job.degree = degree;
  job.microbatches = microbatches;
  job.batch = batch;
  return job;
}

/// Leaves a rank the sequences that it is given where its batch is not prescaled. The others come in the
/// step.
inline void keep_own_sequences(engine::Engine& engine, const engine::Groups& groups) {
  const program::Job& job = engine.job();
  if (job.prescaled_batch) return;
  const int64_t part = job.batch * job.tokens / job.tensor_degree, first = part * groups.coordinates().tensor;
  for (int m = 0; m < job.microbatches; ++m)
    for (int64_t at = 0; at < job.batch * job.tokens; ++at)
      if (at < first || at >= first + part) engine.tokens(m)[at] = engine.targets(m)[at] = 0;
}

/// Sequences that can be learned: each token follows from the one before, but for the first. Of a masked
/// model some tokens of each have targets. Of one that knows padding they have several lengths. Texts that
/// share a sequence have 1 to 3 tokens.
inline void fill_batch(engine::Engine& engine, const engine::Groups& groups, int step) {
  const program::Job& job = engine.job();
  for (int m = 0; m < job.microbatches; ++m)
    for (int64_t b = 0; b < job.batch; ++b) {
      const int64_t sample =
          program::microbatch_number(job, groups.group(), groups.member(), m) * job.batch + b;
      int32_t token = static_cast<int32_t>((step * 31 + sample * 7) % job.spec.vocabulary);
      for (int64_t t = 0; t < job.tokens; ++t) {
        const int32_t next = static_cast<int32_t>((token * 3 + 5) % job.spec.vocabulary);
        engine.tokens(m)[b * job.tokens + t] = token;
        const bool counts = job.spec.task != model::Task::masked || job.targets == 0 ||
                            (t * 7 + sample) % job.tokens < job.targets;
        engine.targets(m)[b * job.tokens + t] = counts ? next : -1;
        token = next;
      }
      if (job.packed)
        for (int64_t t = (sample + step) % 3; t < job.tokens; t += 1 + t % 3)
          engine.targets(m)[b * job.tokens + t] = text::kEndsText;
      if (job.spec.padding < 0 || job.packed) continue;
      for (int64_t t = 1 + (sample * 5 + step) % job.tokens; t < job.tokens; ++t) {
        engine.tokens(m)[b * job.tokens + t] = job.spec.padding;
        engine.targets(m)[b * job.tokens + t] = -1;
      }
    }
  keep_own_sequences(engine, groups);
}

inline engine::StepSettings settings_of(int step) {
  engine::StepSettings settings;
  settings.step = static_cast<uint32_t>(step);
  settings.seed = 11;
  settings.optimizer.learning_rate = 3e-3f;
  settings.optimizer.beta2 = 0.95f;
  settings.optimizer.weight_decay = 0.1f;
  settings.clip_norm = 1;
  return settings;
}

/// What a step of a job takes: derivatives of fp16 are scaled by so much that nothing overflows here.
inline engine::StepSettings settings_of(const program::Job& job, int step) {
  engine::StepSettings settings = settings_of(step);
  if (job.precision == program::Precision::fp16) settings.loss_scale = 4096;
  return settings;
}

/// Which GPU a rank of the world computes on; without one all compute on CPUs.
using GpuOf = std::function<int(int rank)>;

inline int gpu_of_rank(const GpuOf& gpu_of, weftComm_t world) {
  int rank = 0;
  if (!gpu_of) return -1;
  if (world != nullptr && weftCommUserRank(world, &rank) != weftSuccess) ADD_FAILURE() << "no rank";
  return gpu_of(rank);
}

/// Losses of steps [first, last), as rank 0 sees them; every rank must see the same. `begin` prepares the
/// state, `end` looks at it.
using EngineAction = std::function<Status(engine::Engine&, const engine::Groups&)>;
inline std::vector<double> train(const program::Job& job, int first, int last, const EngineAction& begin = {},
                                 const EngineAction& end = {}, const Nodes& nodes = 1,
                                 const GpuOf& gpu_of = {},
                                 engine::Attention attention = engine::Attention::own) {
  std::vector<double> losses(last - first, -1.0);
  std::mutex mutex;
  on_ranks(job.world, nodes, [&](weftComm_t world) {
    const int gpu = gpu_of_rank(gpu_of, world);
    Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict, gpu);
    LOOM_ASSERT_OK(groups);
    Result<std::unique_ptr<engine::Engine>> engine =
        engine::Engine::create(job, *groups, {.gpu = gpu, .attention = attention});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK(begin ? begin(**engine, *groups) : (*engine)->initialize(3));
    for (int step = first; step < last; ++step) {
      fill_batch(**engine, *groups, step);
      const Result<engine::StepResult> result = (*engine)->step(settings_of(job, step));
      LOOM_ASSERT_OK(result);
      EXPECT_FALSE(result->skipped);
      const std::lock_guard lock(mutex);
      if (losses[step - first] < 0) losses[step - first] = result->loss;
      EXPECT_EQ(losses[step - first], result->loss) << "rank " << groups->rank() << ", step " << step;
    }
    if (end) LOOM_ASSERT_OK(end(**engine, *groups));
  });
  return losses;
}

/// Bytes that all ranks together send to other nodes in one step.
inline double bytes_between_nodes(const program::Job& job, int nodes) {
  std::atomic<uint64_t> sum{0};
  on_ranks(job.world, nodes, [&](weftComm_t world) {
    const Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), false);
    LOOM_ASSERT_OK(groups);
    const auto engine = engine::Engine::create(job, *groups, {});
    LOOM_ASSERT_OK(engine);
    LOOM_ASSERT_OK((*engine)->initialize(1));
    weftCommStats_t before = WEFT_COMM_STATS_INITIALIZER, after = WEFT_COMM_STATS_INITIALIZER;
    ASSERT_EQ(weftCommGetStats(world, &before), weftSuccess);
    fill_batch(**engine, *groups, 0);
    LOOM_ASSERT_OK((*engine)->step(settings_of(0)));
    LOOM_ASSERT_OK(groups->barrier());
    ASSERT_EQ(weftCommGetStats(world, &after), weftSuccess);
    sum += after.interBytes - before.interBytes;
  });
  return static_cast<double>(sum.load());
}

}  // namespace loom::testing
