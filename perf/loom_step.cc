// Times Loom's training steps alone: no files, no checkpoints, one process. GPT-2 124M unless told otherwise,
// with random tokens; prints a line of JSON a step, then one with where the time of the steps went.
//
//   loom_step --tokens 64 --batch 4 --threads 1 --precision fp32 --steps 5
//
// Steps are told in wall time and in the processor time of the whole process, which other work on the machine
// inflates less. The first step touches memory for the first time: leave it out. perf/train_compare.py starts
// this beside PyTorch.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "ops/operators.h"
#include "train/breakdown.h"

namespace {

using namespace loom;

struct Options {
  int64_t tokens = 64, batch = 4, layers = 12, width = 768, heads = 12, vocabulary = 50257, context = 1024;
  int threads = 1, steps = 5, microbatches = 1;
  double dropout = 0;
  std::string precision = "fp32";
};

double processor_ms() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

/// GFLOP/s of the best of some products of GPT-2's shapes, in a model of T, on all threads, by processor
/// time.
template <typename T>
double peak_gflops(int threads) {
  constexpr int64_t kRows = 1024, kWidth = 768;
  Workers workers(threads);
  std::vector<T> x(kRows * kWidth), w(kWidth * kWidth), y(kRows * kWidth);
  for (T& each : x) store(each, 0.5f);
  for (T& each : w) store(each, 0.25f);
  double best = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const double before = processor_ms();
    ops::operators<T>().linear_forward(workers, x.data(), w.data(), nullptr, y.data(), kRows, kWidth, kWidth);
    const double flops = 2.0 * kRows * kWidth * kWidth;
    best = std::max(best, flops / (processor_ms() - before) * 1e-6 * threads);
  }
  return best;
}

program::Job job_of(const Options& o) {
  program::Job job;
  model::ModelSpec& spec = job.spec;
  spec.vocabulary = o.vocabulary;
  spec.context = std::max(o.context, o.tokens);
  spec.width = o.width;
  spec.layers = o.layers;
  spec.heads = o.heads;
  spec.feed_forward = 4 * o.width;
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = static_cast<float>(o.dropout);
  job.precision = o.precision == "bf16" ? program::Precision::bf16 : program::Precision::fp32;
  job.batch = o.batch;
  job.tokens = o.tokens;
  job.microbatches = o.microbatches;
  return job;
}

Status measure(const Options& o) {
  const program::Job job = job_of(o);
  LOOM_TRY(job.check());
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false);
  LOOM_TRY(groups.status());
  const auto [peak, operators] = program::with_type(job.precision, [&]<typename T>(T) {
    return std::pair(peak_gflops<T>(o.threads), ops::operators<T>().name);
  });
  Result<std::unique_ptr<engine::Engine>> made = engine::Engine::create(job, *groups, {.threads = o.threads});
  LOOM_TRY(made.status());
  engine::Engine& engine = **made;
  LOOM_TRY(engine.initialize(1));
  std::mt19937 random(1);
  for (int m = 0; m < o.microbatches; ++m)
    for (const std::span<int32_t> numbers : {engine.tokens(m), engine.targets(m)})
      for (int32_t& number : numbers)
        number = static_cast<int32_t>(random() % static_cast<uint32_t>(o.vocabulary));

  train::MeanBreakdown mean;
  const double flops = job.flops_per_token() * job.tokens_per_step();
  for (int step = 0; step < o.steps; ++step) {
    engine::StepSettings settings;
    settings.step = static_cast<uint32_t>(step);
    settings.optimizer.learning_rate = 3e-4f;
    settings.optimizer.weight_decay = 0.1f;
    settings.clip_norm = 1;
    const double before = processor_ms();
    const Result<engine::StepResult> done = engine.step(settings);
    const double spent = processor_ms() - before;
    LOOM_TRY(done.status());
    fmt::print(R"({{"step": {}, "loss": {:.6f}, "norm": {:.6f}, "ms": {:.1f}, "processor_ms": {:.1f}}})"
               "\n",
               step, done->loss, done->gradient_norm, done->seconds * 1e3, spent);
    std::fflush(stdout);
    mean.add(train::breakdown_of(engine.training(), engine.timeline(), done->seconds * 1e6, false));
  }
  fmt::print(R"({{"peak_gflops": {:.1f}, "step_gflop": {:.1f}, "operators": "{}", "memory_mb": {})", peak,
             flops * 1e-9, operators, engine.memory_bytes() >> 20);
  for (const auto& [name, us] : mean.mean().parts()) fmt::print(R"(, "{}_ms": {:.1f})", name, us * 1e-3);
  fmt::print("}}\n");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Times Loom's training steps");
  app.add_option("--tokens", o.tokens, "tokens of a sequence (64)")->check(CLI::PositiveNumber);
  app.add_option("--batch", o.batch, "sequences of a microbatch (4)")->check(CLI::PositiveNumber);
  app.add_option("--microbatches", o.microbatches, "of a step (1)")->check(CLI::PositiveNumber);
  app.add_option("--layers", o.layers, "blocks (12)")->check(CLI::PositiveNumber);
  app.add_option("--width", o.width, "of the model (768)")->check(CLI::PositiveNumber);
  app.add_option("--heads", o.heads, "(12)")->check(CLI::PositiveNumber);
  app.add_option("--vocabulary", o.vocabulary, "(50257)")->check(CLI::PositiveNumber);
  app.add_option("--dropout", o.dropout, "(0)")->check(CLI::Range(0.0, 0.99));
  app.add_option("--threads", o.threads, "(1)")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "(5)")->check(CLI::PositiveNumber);
  app.add_option("--precision", o.precision, "fp32 or bf16 (fp32)")->check(CLI::IsMember({"fp32", "bf16"}));
  CLI11_PARSE(app, argc, argv);
  const Status status = measure(o);
  if (!status.ok()) fmt::print(stderr, "loom_step: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
