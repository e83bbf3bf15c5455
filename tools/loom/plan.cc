// loom plan.
#include <fmt/format.h>

#include <algorithm>

#include "loom/commands.h"
#include "program/generate.h"
#include "program/verify.h"
#include "train/data.h"
#include "train/report.h"

namespace loom::command {

Status plan(const PlanOptions& options) {
  const Result<format::Json> json = format::read_json(options.config);
  LOOM_TRY(json.status());
  const Result<train::Config> config = train::parse_config(*json, options.overrides);
  LOOM_TRY(config.status().in(options.config));
  int64_t vocabulary = options.vocabulary;
  int64_t labels = 2;  // where no dataset says
  if (vocabulary == 0 && config->model.vocabulary == 0 && config->model.from.empty()) {
    const Result<train::Data> data = train::open_data(*config);
    LOOM_TRY(data.status().in("the vocabulary comes from the dataset; --vocabulary does without"));
    vocabulary = data->vocabulary;
    labels = std::max<int64_t>(labels, static_cast<int64_t>(data->labels.size()));
  }
  const Result<model::ModelSpec> spec = train::spec_of(*config, vocabulary, labels);
  LOOM_TRY(spec.status());
  const Result<program::Job> job = train::job_of(*config, *spec, options.ranks);
  LOOM_TRY(job.status());
  const Result<program::Program> program = program::make_program(*job);
  LOOM_TRY(program.status());
  const program::MemoryPlan memory = program::plan_memory(*program);
  LOOM_TRY(program::verify(*job, *program, memory));

  program::Machine machine;
  machine.ranks_per_node = options.ranks_per_node;
  machine.flops = options.gflops > 0
                      ? options.gflops * 1e9
                      : train::measured_peak(std::max<int>(1, static_cast<int>(config->parallel.threads)));
  machine.intra_bandwidth = options.intra_gbytes * 1e9;
  machine.inter_bandwidth = options.inter_gbytes * 1e9;
  machine.intra_latency_us = options.intra_latency_us;
  machine.inter_latency_us = options.inter_latency_us;
  const program::Forecast forecast = program::simulate(*job, *program, machine);

  if (options.instructions) fmt::print("{}\n", program::to_string(*program));
  fmt::print(
      "{} parameters; {} ranks, sharded over {}, {} replicas; {} microbatches of {} x {} tokens a rank\n",
      model::parameter_count(model::units_of(*spec)), job->world, job->degree, job->replicas(),
      job->microbatches, job->batch, job->tokens);
  fmt::print("{} instructions, {} buffers; verified\n\n", program->instructions.size(),
             program->buffers.size());
  fmt::print("{:<14}{:>14}\n", "memory", "MiB a rank");
  for (int category = 0; category < program::kCategories; ++category)
    fmt::print("{:<14}{:>14.2f}\n", program::category_name(static_cast<program::Category>(category)),
               static_cast<double>(memory.peak[category]) / (1 << 20));
  fmt::print("{:<14}{:>14.2f}  at instruction {}\n", "peak",
             static_cast<double>(memory.peak_bytes) / (1 << 20), memory.peak_instruction);
  fmt::print("{:<14}{:>14.2f}\n\n", "arena", static_cast<double>(memory.bytes) / (1 << 20));
  fmt::print(
      "predicted step  {:.2f} ms: {:.2f} ms computing at {:.1f} GFLOP/s, {:.2f} ms waiting for collectives "
      "({:.1f} %)\n",
      forecast.step_us / 1e3, forecast.compute_us / 1e3, machine.flops / 1e9, forecast.exposed_us / 1e3,
      forecast.exposed_us / forecast.step_us * 100);
  fmt::print("tokens/s        {:.0f}\n", job->tokens_per_step() / forecast.step_us * 1e6);
  return {};
}

}  // namespace loom::command
