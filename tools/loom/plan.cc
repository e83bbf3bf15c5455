// loom plan.
#include <fmt/format.h>

#include <algorithm>

#include "loom/commands.h"
#include "program/generate.h"
#include "program/schedule.h"
#include "program/verify.h"
#include "text/dataset.h"
#include "train/report.h"

namespace loom::command {
namespace {

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void print_layout(const program::Job& job, int ranks_per_node) {
  constexpr int kDrawn = 64;  // ranks; the pattern goes on
  const program::Layout layout = job.layout();
  if (layout.pipeline * layout.tensor == 1) return;
  fmt::print("\n{}; d data rank, p stage, t tensor rank\n", program::to_string(layout));
  if (layout.ranks() <= kDrawn) fmt::print("{}", program::picture(layout, ranks_per_node));
  fmt::print("{}", program::groups_text(layout));
}

void print_partition(const train::Config& config, const program::Job& job,
                     const std::vector<double>& measured_us) {
  const program::PartitionRequest request = train::partition_request(config, job, measured_us);
  std::vector<int> first;
  for (const program::Part& part : program::parts_of(job)) first.push_back(part.begin);
  const Result<program::Partition> partition = program::partition_by_hand(request, first);
  if (!partition.ok()) return;  // cannot be: the job is right
  fmt::print("\npartition \"{}\", {} times\n{}", config.parallel.partition,
             measured_us.empty() ? "modelled" : "measured", program::to_string(job, request, *partition));
}

/// A column a stage, as far as they fit.
void print_memory(const std::vector<program::Program>& programs,
                  const std::vector<program::MemoryPlan>& memory) {
  const size_t shown = std::min<size_t>(memory.size(), 8);
  size_t instructions = 0, buffers = 0;
  for (const program::Program& program : programs)
    instructions += program.instructions.size(), buffers += program.buffers.size();
  fmt::print("\n{} instructions, {} buffers; verified\n\n", instructions, buffers);
  fmt::print("{:<14}", "memory");
  for (size_t s = 0; s < shown; ++s)
    fmt::print("{:>14}", shown == 1 ? "MiB a rank" : fmt::format("MiB, stage {}", s));
  for (int category = 0; category < program::kCategories; ++category) {
    fmt::print("\n{:<14}", program::category_name(static_cast<program::Category>(category)));
    for (size_t s = 0; s < shown; ++s) fmt::print("{:>14.2f}", mib(memory[s].peak[category]));
  }
  fmt::print("\n{:<14}", "peak");
  for (size_t s = 0; s < shown; ++s) fmt::print("{:>14.2f}", mib(memory[s].peak_bytes));
  if (shown == 1) fmt::print("  at instruction {}", memory[0].peak_instruction);
  fmt::print("\n{:<14}", "arena");
  for (size_t s = 0; s < shown; ++s) fmt::print("{:>14.2f}", mib(memory[s].bytes));
  fmt::print("\n\n");
}

void print_time(const program::Job& job, const program::PipelineForecast& forecast,
                const program::Machine& machine) {
  double compute = 0, exposed = 0;  // means over the stages
  for (const program::Forecast& stage : forecast.stages) {
    compute += stage.compute_us / static_cast<double>(forecast.stages.size());
    exposed += stage.exposed_us / static_cast<double>(forecast.stages.size());
  }
  fmt::print(
      "predicted step  {:.2f} ms: {:.2f} ms computing at {:.1f} GFLOP/s, {:.2f} ms waiting for {} ({:.1f} "
      "%)\n",
      forecast.step_us / 1e3, compute / 1e3, machine.flops / 1e9, exposed / 1e3,
      job.pipeline_degree > 1 ? "communication and other stages" : "collectives",
      exposed / forecast.step_us * 100);
  if (job.pipeline_degree > 1)
    fmt::print("bubble          {:.1f} % ({}; {:.1f} % if all stages were equal and links free)\n",
               forecast.bubble * 100, program::schedule_name(job.schedule), program::ideal_bubble(job) * 100);
  fmt::print("tokens/s        {:.0f}\n", job.tokens_per_step() / forecast.step_us * 1e6);
}

}  // namespace

Status plan(const PlanOptions& options) {
  const Result<format::Json> json = format::read_json(options.config);
  LOOM_TRY(json.status());
  const Result<train::Config> config = train::parse_config(*json, options.overrides);
  LOOM_TRY(config.status().in(options.config));
  int64_t vocabulary = options.vocabulary;
  if (vocabulary == 0 && config->model.vocabulary == 0 && config->model.from.empty()) {
    const auto data = text::TokenDataset::open(config->data.folder, text::Split::train);
    LOOM_TRY(data.status().in("the vocabulary comes from the dataset; --vocabulary does without"));
    vocabulary = (*data)->vocabulary_size();
  }
  const Result<model::ModelSpec> spec = train::spec_of(*config, vocabulary);
  LOOM_TRY(spec.status());
  const int threads = std::max<int>(1, static_cast<int>(config->parallel.threads));
  std::vector<double> measured_us;
  if (config->parallel.profile && config->parallel.pipeline_degree > 1) {
    Result<std::vector<double>> times = train::profile(*config, *spec, options.ranks, threads);
    LOOM_TRY(times.status());
    measured_us = times.take();
  }
  const Result<program::Job> job = train::job_of(*config, *spec, options.ranks, measured_us);
  LOOM_TRY(job.status());
  const Result<std::vector<program::Program>> programs = program::make_programs(*job);
  LOOM_TRY(programs.status());
  std::vector<program::MemoryPlan> memory;
  for (const program::Program& program : *programs) {
    memory.push_back(program::plan_memory(program));
    LOOM_TRY(program::verify(*job, program, memory.back()));
  }
  LOOM_TRY(program::verify_pipeline(*programs));

  program::Machine machine;
  machine.ranks_per_node = options.ranks_per_node;
  machine.flops = options.gflops > 0 ? options.gflops * 1e9 : train::measured_peak(threads);
  machine.intra_bandwidth = options.intra_gbytes * 1e9;
  machine.inter_bandwidth = options.inter_gbytes * 1e9;
  machine.intra_latency_us = options.intra_latency_us;
  machine.inter_latency_us = options.inter_latency_us;
  const program::PipelineForecast forecast = program::simulate(*job, *programs, machine);

  if (options.instructions)
    for (const program::Program& program : *programs) {
      if (job->pipeline_degree > 1) fmt::print("stage {}\n", program.stage);
      fmt::print("{}\n", program::to_string(program));
    }
  fmt::print(
      "{} parameters; {} ranks, sharded over {}, {} replicas; {} microbatches of {} x {} tokens a rank\n",
      model::parameter_count(model::units_of(*spec)), job->world, job->degree, job->replicas(),
      job->microbatches, job->batch, job->tokens);
  print_layout(*job, options.ranks_per_node);
  if (job->pipeline_degree > 1) print_partition(*config, *job, measured_us);
  print_memory(*programs, memory);
  print_time(*job, forecast, machine);
  return {};
}

}  // namespace loom::command
