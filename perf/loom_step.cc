// Times Loom's training steps alone: no files, no checkpoints, one process, random tokens. The default model
// is GPT-2 124M. Prints a line of JSON a step, then one with the sums: tokens per second, memory as planned
// and as measured, and on CPUs the time by kind of instruction. It has not run on a GPU.
//
//   loom_step --tokens 64 --batch 4 --threads 1 --precision fp32 --steps 5
//   loom_step --family llama --layers 30 --width 576 --heads 9 --key-value-heads 3 --vocabulary 49152
//   loom_step --gpu 0 --tokens 1024 --batch 64 --precision bf16 --steps 30 --kernels
//
// Steps are told in wall time and in the processor time of the whole process, which other work on the machine
// inflates less. With --kernels one more step follows, whose kernels are timed: a line of JSON for each
// kernel and kind of instruction, the longest first. The first step touches memory for the first time: leave
// it out. perf/train_compare.py starts this beside PyTorch.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <random>
#include <vector>

#include "base/process_memory.h"
#include "device/cuda/device.h"
#include "engine/attention_choice.h"
#include "engine/engine.h"
#include "model/families.h"
#include "ops/operators.h"
#include "train/breakdown.h"

namespace {

using namespace loom;

struct Options {
  int64_t tokens = 64, batch = 4, layers = 12, width = 768, heads = 12, vocabulary = 50257, context = 1024;
  int64_t key_value_heads = 0;
  std::string family = "gpt2";
  int threads = 1, steps = 5, microbatches = 1, gpu = -1;
  double dropout = 0;
  bool kernels = false;
  std::string precision = "fp32", attention = "own";
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
  const model::Family family = *model::family_from(o.family);
  spec = *model::choices_of(family, model::usual_task(family));
  spec.tied = true;
  spec.vocabulary = o.vocabulary;
  spec.context = std::max(o.context, o.tokens);
  spec.width = o.width;
  spec.layers = o.layers;
  spec.heads = o.heads;
  spec.key_value_heads = o.key_value_heads;
  model::complete(spec);
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = static_cast<float>(o.dropout);
  job.precision = o.precision == "bf16"   ? program::Precision::bf16
                  : o.precision == "fp16" ? program::Precision::fp16
                                          : program::Precision::fp32;
  job.batch = o.batch;
  job.tokens = o.tokens;
  job.microbatches = o.microbatches;
  return job;
}

/// Where the steps are computed, and how much of its memory is in use by all.
class Place {
 public:
  static Result<Place> open(int gpu) {
    Place place;
    if (gpu < 0) return place;
    Result<std::unique_ptr<cuda::Device>> device = cuda::Device::open(gpu);
    LOOM_TRY(device.status());
    place.device_ = device.take();
    return place;
  }
  std::string name() const { return device_ ? device_->describe() : "CPUs"; }
  Result<int64_t> bytes_in_use() const {
    if (!device_) return resident_bytes();
    const Result<device::MemoryState> memory = device_->memory();
    LOOM_TRY(memory.status());
    return memory->all - memory->free;
  }

 private:
  std::unique_ptr<cuda::Device> device_;
};

void fill_batch(engine::Engine& engine, const Options& o) {
  std::mt19937 random(1);
  for (int m = 0; m < o.microbatches; ++m)
    for (const std::span<int32_t> numbers : {engine.tokens(m), engine.targets(m)})
      for (int32_t& number : numbers)
        number = static_cast<int32_t>(random() % static_cast<uint32_t>(o.vocabulary));
}

/// What all steps came to; `ms` are of each.
void print_sums(const Options& o, const engine::Engine& engine, std::vector<double> ms) {
  constexpr size_t kWarmup = 3;  // steps that are left out
  const program::Job& job = engine.job();
  ms.erase(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(std::min(kWarmup, ms.size() - 1)));
  std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2), ms.end());
  const double median = ms[ms.size() / 2];
  const int64_t parameters = model::parameter_count(engine.units());
  // As llm.c counts it: causal attention is half of a square.
  const int64_t formula = 6 * parameters + 6 * o.layers * o.width * o.tokens;
  fmt::print(R"("parameters": {}, "batch": {}, "tokens": {}, "ms": {:.2f}, "tokens_per_second": {:.1f}, )"
             R"("flops_per_token": {}, "planned_mb": {})",
             parameters, o.batch * o.microbatches, o.tokens, median, job.tokens_per_step() / median * 1e3,
             formula, engine.memory_bytes() >> 20);
}

engine::StepSettings settings_of(int step) {
  engine::StepSettings settings;
  settings.step = static_cast<uint32_t>(step);
  settings.optimizer.learning_rate = 3e-4f;
  settings.optimizer.weight_decay = 0.1f;
  settings.clip_norm = 1;
  return settings;
}

/// What one more step's kernels take, on a GPU.
Status print_kernels(engine::Engine& engine, int step) {
  const Result<std::vector<cuda::KernelTime>> times = engine.timed_step(settings_of(step));
  LOOM_TRY(times.status());
  for (const cuda::KernelTime& time : *times)
    fmt::print(R"({{"instruction": "{}", "kernel": "{}", "calls": {}, "kernel_ms": {:.4f}}})"
               "\n",
               time.section, time.name, time.calls, time.ms);
  return {};
}

Status measure(const Options& o) {
  const program::Job job = job_of(o);
  LOOM_TRY(job.check());
  const Result<Place> place = Place::open(o.gpu);
  LOOM_TRY(place.status());
  const Result<int64_t> before_all = place->bytes_in_use();
  LOOM_TRY(before_all.status());
  const Result<engine::Groups> groups = engine::Groups::create(nullptr, {}, false, o.gpu);
  LOOM_TRY(groups.status());
  Result<std::unique_ptr<engine::Engine>> made = engine::Engine::create(
      job, *groups, {.threads = o.threads, .gpu = o.gpu, .attention = engine::attention_from(o.attention)});
  LOOM_TRY(made.status());
  engine::Engine& engine = **made;
  LOOM_TRY(engine.initialize(1));
  fill_batch(engine, o);
  train::MeanBreakdown mean;
  std::vector<double> ms;
  for (int step = 0; step < o.steps; ++step) {
    const double before = processor_ms();
    const Result<engine::StepResult> done = engine.step(settings_of(step));
    const double spent = processor_ms() - before;
    LOOM_TRY(done.status());
    ms.push_back(done->seconds * 1e3);
    fmt::print(R"({{"step": {}, "loss": {:.6f}, "norm": {:.6f}, "ms": {:.1f}, "processor_ms": {:.1f}}})"
               "\n",
               step, done->loss, done->gradient_norm, ms.back(), spent);
    std::fflush(stdout);
    if (o.gpu < 0)
      mean.add(train::breakdown_of(engine.training(), engine.timeline(), done->seconds * 1e6, false));
  }
  const Result<int64_t> after_all = place->bytes_in_use();
  LOOM_TRY(after_all.status());
  fmt::print(R"({{"system": "Loom on {}", )", place->name());
  print_sums(o, engine, std::move(ms));
  fmt::print(R"(, "memory_mb": {})", (*after_all - *before_all) >> 20);
  if (o.gpu < 0) {
    const auto [peak, operators] = program::with_type(job.precision, [&]<typename T>(T) {
      return std::pair(peak_gflops<T>(o.threads), ops::operators<T>().name);
    });
    fmt::print(R"(, "peak_gflops": {:.1f}, "step_gflop": {:.1f}, "operators": "{}")", peak,
               job.flops_per_token() * job.tokens_per_step() * 1e-9, operators);
    for (const auto& [name, us] : mean.mean().parts()) fmt::print(R"(, "{}_ms": {:.1f})", name, us * 1e-3);
  }
  fmt::print("}}\n");
  if (o.kernels) return print_kernels(engine, o.steps);
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
  app.add_option("--key-value-heads", o.key_value_heads, "of llama and its like (as many as heads)")
      ->check(CLI::PositiveNumber);
  app.add_option("--family", o.family, "gpt2, llama, mistral, qwen2 or qwen3 (gpt2)")
      ->check(CLI::IsMember({"gpt2", "llama", "mistral", "qwen2", "qwen3"}));
  app.add_option("--vocabulary", o.vocabulary, "(50257)")->check(CLI::PositiveNumber);
  app.add_option("--dropout", o.dropout, "(0)")->check(CLI::Range(0.0, 0.99));
  app.add_option("--threads", o.threads, "(1)")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "(5)")->check(CLI::PositiveNumber);
  app.add_option("--precision", o.precision, "fp32, bf16 or fp16 (fp32)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--gpu", o.gpu, "number of the GPU; -1: on CPUs (-1)")->check(CLI::Range(-1, 1023));
  app.add_option("--attention", o.attention, "what computes attention on a GPU: own, cudnn or auto (own)")
      ->check(CLI::IsMember({"own", "cudnn", "auto"}));
  app.add_flag("--kernels", o.kernels, "times the kernels of one more step, on a GPU");
  CLI11_PARSE(app, argc, argv);
  const Status status = measure(o);
  if (!status.ok()) fmt::print(stderr, "loom_step: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
