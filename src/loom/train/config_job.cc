// The job that a config asks for, and how it is divided: by the cost of parts, and so that it fits.
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "program/generate.h"
#include "program/memory.h"
#include "train/config.h"

namespace loom::train {

bool by_hand(const std::string& partition) {
  return partition.find_first_not_of("0123456789,") == partition.npos;
}

program::Precision precision_of(const Config& config) {
  using program::Precision;
  const std::string& name = config.parallel.precision;
  return name == "bf16" ? Precision::bf16 : name == "fp16" ? Precision::fp16 : Precision::fp32;
}

namespace {

/// What of the job needs no search.
Result<program::Job> plain_job(const Config& config, const model::ModelSpec& spec, int world) {
  using program::Schedule;
  const Config::Parallel& parallel = config.parallel;
  program::Job job;
  job.spec = spec;
  job.precision = precision_of(config);
  job.tokens = config.data.sequence_length;
  job.packed = config.data.packing;
  job.targets = spec.objective().targets(job.tokens);
  job.world = world;
  job.strict = parallel.strict;
  job.checkpoint_group =
      static_cast<int>(std::min(parallel.activation_checkpointing.group, std::max<int64_t>(1, spec.layers)));
  job.checkpoint_every = static_cast<int>(parallel.activation_checkpointing.every);
  job.offload = parallel.activation_offloading;
  job.loading_horizon = static_cast<int>(parallel.activation_loading_horizon);
  job.prefetch = static_cast<int>(parallel.prefetch);
  job.in_flight = static_cast<int>(parallel.in_flight);
  job.live_elements = parallel.live_parameters;
  job.shard_optimizer_only = parallel.shard_optimizer_state;
  job.pipeline_degree = static_cast<int>(parallel.pipeline_degree);
  job.tensor_degree = static_cast<int>(parallel.tensor_degree);
  job.divides_rows = parallel.optimize == "memory" && parallel.tensor_degree > 1;
  job.prescaled_batch = parallel.prescaled_batch || parallel.tensor_degree == 1;
  job.placement = parallel.placement;
  job.schedule = parallel.pipeline == "simple"        ? Schedule::simple
                 : parallel.pipeline == "interleaved" ? Schedule::interleaved
                                                      : Schedule::one_f_one_b;
  const bool interleaved = job.schedule == Schedule::interleaved && job.pipeline_degree > 1;
  job.virtual_stages = interleaved ? static_cast<int>(parallel.virtual_stages) : 1;
  job.active_microbatches = static_cast<int>(parallel.active_microbatches);
  const int64_t together = parallel.pipeline_degree * parallel.tensor_degree;
  if (world % together != 0)
    return fail(Code::invalid_argument,
                "parallel.pipeline_degree · tensor_degree is {} · {}, must divide the {} ranks",
                parallel.pipeline_degree, parallel.tensor_degree, world);
  const int64_t global = config.data.global_batch, data = job.data_degree();
  if (global % data != 0)
    return fail(Code::invalid_argument, "data.global_batch is {}, must be a multiple of the {} {}ranks",
                global, data, together > 1 ? "data " : "");
  const int64_t share = global / data;
  // What is not prescaled is a rank's own: its tensor group computes that of all its ranks together.
  const int64_t readers = job.prescaled_batch ? 1 : job.tensor_degree;
  if (share % readers != 0)
    return fail(
        Code::invalid_argument,
        "data.global_batch is {}, must be a multiple of data ranks · tensor_degree, {} · {}, for each "
        "tensor rank to read a part of its group's; with parallel.prescaled_batch: true each reads all",
        global, data, readers);
  job.batch = config.data.microbatch > 0 ? config.data.microbatch * readers : share;
  if (share % job.batch != 0)
    return fail(Code::invalid_argument, "data.microbatch is {}, must divide a rank's share, {} sequences",
                config.data.microbatch, share / readers);
  job.microbatches = static_cast<int>(share / job.batch);
  return job;
}

/// With cuts by hand, the config must say whether a matrix of two stages is to have two copies.
Status check_tied_by_hand(const Config& config, const program::Job& job) {
  const Config::Parallel& parallel = config.parallel;
  if (!job.spec.tied || parallel.tied != "auto" || !by_hand(parallel.partition)) return {};
  return fail(
      Code::invalid_argument,
      "parallel.partition \"{}\" separates unit 0, the embedding, from unit {}, the head, which share "
      "a matrix: parallel.tied=copies puts a copy on the first and on the last stage{}",
      parallel.partition, job.units() - 1,
      config.model.from.empty() ? ", model.tied=false gives each a matrix of its own"
                                : "; the model of model.from cannot be untied");
}

Result<program::Partition> best_partition(const program::PartitionRequest& request, const program::Job& job) {
  return job.virtual_stages > 1 ? program::partition_interleaved(request, job.pipeline_degree)
                                : program::partition_exactly(request);
}

/// Cuts the model as the config says, whatever a rank's memory.
Status cut(const Config& config, const program::MeasuredUnits& measured, program::Job& job) {
  job.first_units.clear();
  const bool together = config.parallel.tied == "together" && job.spec.tied;
  if (job.pipeline_degree == 1 || (config.parallel.partition == "even" && !together)) return {};
  LOOM_TRY(job.check());
  const Result<program::Partition> chosen = partition_of(config, job, measured);
  if (!chosen.ok() && together && chosen.status().code() == Code::invalid_argument)
    return chosen.status().in(
        "parallel.tied is together, so the embedding and the head, which share a matrix, must be in one "
        "part, "
        "and no pipeline has that; parallel.tied=copies puts a copy at each end, model.tied=false unties "
        "them");
  LOOM_TRY(chosen.status().in("parallel.partition"));
  LOOM_TRY(check_tied_by_hand(config, job));
  job.first_units = chosen->first_units;
  return {};
}

}  // namespace

Result<program::Partition> partition_of(const Config& config, const program::Job& job,
                                        const program::MeasuredUnits& measured) {
  const program::PartitionRequest request = partition_request(config, job, measured);
  const std::string& how = config.parallel.partition;
  if (how == "auto") return best_partition(request, job);
  if (how == "tree") return program::partition_by_tree(request);
  std::vector<int> first;
  if (how == "even") {
    for (const program::Part& part : program::parts_of(job)) first.push_back(part.begin);
    return program::partition_by_hand(request, std::move(first));
  }
  for (size_t at = 0; at <= how.size();) {
    const size_t comma = std::min(how.find(',', at), how.size());
    if (comma - at < 1 || comma - at > 8)
      return fail(Code::invalid_argument, "parallel.partition is \"{}\", must be first units such as 0,5,9",
                  how);
    first.push_back(std::stoi(how.substr(at, comma - at)));
    at = comma + 1;
  }
  return program::partition_by_hand(request, std::move(first));
}

program::PartitionRequest partition_request(const Config& config, const program::Job& job,
                                            const program::MeasuredUnits& measured) {
  program::PartitionRequest request = program::partition_request(job, program::Machine(), measured);
  request.memory_weight = config.parallel.memory_weight;
  if (config.parallel.tied == "together" && job.spec.tied) request.together = {{0, job.units() - 1}};
  return request;
}

namespace {

/// Of each stage.
Result<std::vector<int64_t>> arenas_of(const program::Job& job) {
  const Result<std::vector<program::Program>> programs = program::make_programs(job);
  LOOM_TRY(programs.status());
  std::vector<int64_t> arenas;
  for (const program::Program& program : *programs) arenas.push_back(program::plan_memory(program).bytes);
  return arenas;
}

/// What each stage's arena has besides what the partition was charged with.
std::vector<double> besides(const program::Job& job, const program::PartitionRequest& request,
                            const std::vector<int64_t>& arenas) {
  std::vector<double> bytes(arenas.begin(), arenas.end());
  for (const program::Part& part : program::parts_of(job))
    bytes[static_cast<size_t>(part.stage)] -= memory_of(request, part.number, part.begin, part.end);
  return bytes;
}

/// The arena of the stage that needs most. A partition is charged with less than its arenas are: what does
/// not depend on the cuts, or hardly. So while the best one needs more than the limit, the best is looked for
/// whose parts keep it with what the last one needed besides; in the end the one whose parts need least.
Result<int64_t> make_fit(const Config& config, const program::MeasuredUnits& measured, int64_t limit,
                         program::Job& job) {
  constexpr int kMostTries = 8;
  const bool moves = job.pipeline_degree > 1 && config.parallel.partition == "auto";
  program::PartitionRequest request = partition_request(config, job, measured);
  // Arenas say better what is in use for a time only, and beside what: a head's logits need no room that
  // recomputed blocks had before.
  for (program::UnitCost& unit : request.units) unit.transient_bytes = 0;
  request.memory_limit_bytes = static_cast<double>(limit);
  std::vector<int> best = job.first_units;
  int64_t least = INT64_MAX;
  for (int tries = 1;; ++tries) {
    const Result<std::vector<int64_t>> arenas = arenas_of(job);
    LOOM_TRY(arenas.status());
    const int64_t most = *std::max_element(arenas->begin(), arenas->end());
    if (most < least) least = most, best = job.first_units;
    if (least <= limit || !moves || request.memory_limit_bytes == 0) break;
    // The most that any needed besides, so that none comes twice.
    const std::vector<double> now = besides(job, request, *arenas);
    request.besides.resize(now.size(), -std::numeric_limits<double>::infinity());
    for (size_t stage = 0; stage < now.size(); ++stage)
      request.besides[stage] = std::max(request.besides[stage], now[stage]);
    Result<program::Partition> next = best_partition(request, job);
    if (!next.ok() || tries == kMostTries) {
      request.memory_limit_bytes = 0;
      request.memory_weight = 1;
      next = best_partition(request, job);
      LOOM_TRY(next.status());
    }
    job.first_units = next->first_units;
  }
  job.first_units = std::move(best);
  return least;
}

}  // namespace

Result<int64_t> arena_bytes(const program::Job& job) {
  const Result<std::vector<int64_t>> arenas = arenas_of(job);
  LOOM_TRY(arenas.status());
  return *std::max_element(arenas->begin(), arenas->end());
}

Result<program::Job> job_of(const Config& config, const model::ModelSpec& spec, int world,
                            const program::MeasuredUnits& measured, const model::TableTraits& table) {
  Result<program::Job> made = plain_job(config, spec, world);
  LOOM_TRY(made.status());
  program::Job job = made.take();
  job.table = table;
  const int data = job.data_degree();
  const int64_t limit = config.parallel.memory_limit_mb << 20;
  const bool choose = config.parallel.sharded_data_parallel_degree == 0;
  Status status;
  // Of one rank there is nothing to share: an optimizer's state is shared by two at least.
  for (int degree = choose && job.shard_optimizer_only ? 2 : 1; degree <= data; ++degree) {
    if (choose && data % degree != 0) continue;
    job.degree = choose ? degree : static_cast<int>(config.parallel.sharded_data_parallel_degree);
    status = cut(config, measured, job);
    if (status.ok() && limit > 0) {
      const Result<int64_t> bytes = make_fit(config, measured, limit, job);
      LOOM_TRY(bytes.status());
      if (*bytes > limit)
        status = fail(
            Code::out_of_memory,
            "a rank needs {} MiB with sharded_data_parallel_degree {}{}, but "
            "parallel.memory_limit_mb is {}; activation_checkpointing or a smaller microbatch needs less",
            (*bytes >> 20) + 1, job.degree,
            job.first_units.empty() ? "" : fmt::format(" and partition {}", fmt::join(job.first_units, ",")),
            config.parallel.memory_limit_mb);
    }
    // More ranks may share what is too much for these.
    if (!choose || status.code() != Code::out_of_memory) break;
  }
  LOOM_TRY(status);
  LOOM_TRY(job.check());
  return job;
}

}  // namespace loom::train
