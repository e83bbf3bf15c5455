// Steps that others measured on A100s, predicted: 109 of VIA-Research/vTrain, data/ground_truth_multi.csv
// (MIT licence), of GPT models with 3.6 to 175 billion parameters on 64 to 512 GPUs (perf/seeds/README.md).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "api/machine_of.h"
#include "program/generate.h"
#include "program/simulate.h"
#include "support.h"

namespace loom::testing {
namespace {

/// A file of the project.
std::string in_project(const char* path) { return fmt::format("{}/../../../{}", LOOM_FIXTURES, path); }

struct Measured {
  std::string billions;
  int gpus = 0;
  int64_t batch = 0, microbatch = 0, width = 0, heads = 0, layers = 0, tokens = 0, tensor = 0, pipeline = 0;
  double milliseconds = 0;
};

std::vector<Measured> measured_steps() {
  std::ifstream file(in_project("perf/seeds/vtrain/ground_truth_multi.csv"));
  std::vector<Measured> steps;
  std::string line;
  std::getline(file, line);  // names of columns
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    Measured m;
    int64_t data = 0;
    words >> m.billions >> m.gpus >> m.batch >> m.microbatch >> m.width >> m.heads >> m.layers >> m.tokens >>
        m.tensor >> data >> m.pipeline >> m.milliseconds;
    if (words) steps.push_back(m);
  }
  return steps;
}

/// Megatron-LM: full recomputing, 1F1B, standard attention; tensor ranks are next to each other, then data
/// ranks.
Result<double> predicted_us(const Measured& m, const Cluster& cluster) {
  train::Config config;
  config.model.family = "gpt2";
  config.model.vocabulary = 51200;
  config.model.context = config.data.sequence_length = m.tokens;
  config.model.width = m.width;
  config.model.layers = m.layers;
  config.model.heads = m.heads;
  config.data.global_batch = m.batch;
  config.data.microbatch = m.microbatch;
  config.parallel.tensor_degree = m.tensor;
  config.parallel.pipeline_degree = m.pipeline;
  config.parallel.prescaled_batch = true;
  config.parallel.optimize = "speed";
  config.parallel.memory_weight = 0;
  config.parallel.placement = "PDT";
  config.parallel.precision = "fp16";
  config.parallel.activation_checkpointing = {1, 1};
  const Result<model::ModelSpec> spec = train::spec_of(config, config.model.vocabulary);
  LOOM_TRY(spec.status());
  const Result<program::Job> job = train::job_of(config, *spec, m.gpus);
  LOOM_TRY(job.status());
  const Result<std::vector<program::Program>> programs = program::make_programs(*job);
  LOOM_TRY(programs.status());
  const program::Machine machine = machine_of(cluster, {"megatron", "standard"}, 0, job->precision);
  return program::simulate(*job, *programs, machine).step_us;
}

/// Relative errors of the steps of models of that size.
std::vector<double> errors_of(const std::string& billions) {
  const Result<Cluster> cluster = read_cluster(in_project("perf/seeds/a100-hdr.json"));
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  std::vector<double> errors;
  if (!cluster.ok()) return errors;
  for (const Measured& m : measured_steps()) {
    if (m.billions != billions) continue;
    const Result<double> us = predicted_us(m, *cluster);
    EXPECT_TRUE(us.ok()) << us.status().message();
    if (us.ok()) errors.push_back(*us / 1e3 / m.milliseconds - 1);
    if (us.ok() && std::getenv("LOOM_SHOW_STEPS") != nullptr)
      fmt::print("{} {} T {} P {} microbatch {}: {:.2f} s, {:+.1f} %\n", m.billions, m.gpus, m.tensor,
                 m.pipeline, m.microbatch, m.milliseconds / 1e3, errors.back() * 100);
  }
  return errors;
}

double mean_of(const std::vector<double>& errors) {
  double sum = 0;
  for (const double error : errors) sum += std::abs(error);
  return sum / static_cast<double>(errors.size());
}

TEST(MeasuredSteps, AreAllThere) { EXPECT_EQ(measured_steps().size(), 109u); }

TEST(MeasuredSteps, AreWithin10PercentAtTheMeanAndThoseOf175BillionWithin5) {
  std::vector<double> all;
  for (const char* billions : {"3.6", "18.4", "39.1", "175"}) {
    const std::vector<double> errors = errors_of(billions);
    all.insert(all.end(), errors.begin(), errors.end());
    RecordProperty(fmt::format("mean_error_of_{}", billions), fmt::format("{:.4f}", mean_of(errors)));
    EXPECT_LE(mean_of(errors), std::string_view(billions) == "175" ? 0.05 : 0.15) << billions;
  }
  ASSERT_EQ(all.size(), 109u);
  RecordProperty("mean_error", fmt::format("{:.4f}", mean_of(all)));
  EXPECT_LE(mean_of(all), 0.10);
}

}  // namespace
}  // namespace loom::testing
