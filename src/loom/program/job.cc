// What a job may be, and how a pipeline divides its model.
#include "program/job.h"

#include "base/check.h"
#include "program/schedule.h"

namespace loom::program {
namespace {

/// Passes of units through microbatches in a step, so that its program fits memory, and elements of all
/// activations, so that their bytes are numbers.
constexpr int64_t kMostPasses = 1'000'000;
constexpr double kMostActivations = 1e15;

Status check_step(const Job& job) {
  LOOM_TRY(from_one_to("microbatch size", job.batch, INT32_MAX));
  LOOM_TRY(from_one_to("sequence length", job.tokens, INT32_MAX));
  LOOM_TRY(at_least_one("microbatches", job.microbatches));
  if (job.batch > INT32_MAX / job.tokens)
    return fail(
        Code::invalid_argument,
        "a microbatch has {} · {} tokens, must have {} at most: a smaller data.microbatch is added up as "
        "well",
        job.batch, job.tokens, INT32_MAX);
  const int64_t passes = static_cast<int64_t>(job.microbatches) * job.units();
  if (passes > kMostPasses)
    return fail(
        Code::invalid_argument,
        "a step is {} microbatches through {} units, must be {} passes at most: a larger data.microbatch "
        "or a smaller data.global_batch needs fewer",
        job.microbatches, job.units(), kMostPasses);
  const model::ModelSpec& spec = job.spec;
  const double elements = static_cast<double>(passes) * static_cast<double>(job.batch * job.tokens) *
                          static_cast<double>(spec.width + spec.feed_forward);
  if (elements > kMostActivations)
    return fail(
        Code::invalid_argument,
        "a step has {:.1e} activations on a rank, must have {:.0e} at most: a smaller data.global_batch or "
        "more ranks need fewer",
        elements, kMostActivations);
  return {};
}

Status check_pipeline(const Job& job) {
  const int64_t parts = int64_t{job.pipeline_degree} * job.virtual_stages;
  if (job.schedule == Schedule::interleaved && job.pipeline_degree > 1) {
    if (job.virtual_stages < 2)
      return fail(Code::invalid_argument,
                  "virtual_stages is {}, must be at least 2 with the interleaved schedule",
                  job.virtual_stages);
    if (job.microbatches % job.pipeline_degree != 0)
      return fail(
          Code::invalid_argument,
          "microbatches is {}, must be a multiple of pipeline_degree, {}, with the interleaved schedule",
          job.microbatches, job.pipeline_degree);
  } else if (job.virtual_stages > 1) {
    return fail(Code::invalid_argument,
                "virtual_stages is {}, must be 1 without the interleaved schedule or with one stage",
                job.virtual_stages);
  }
  if (parts > job.units())
    return fail(
        Code::invalid_argument,
        "{} stages{} of a model of {} units (the embedding, {} blocks, the head) leave a stage without "
        "units: must be at most {} stages",
        job.pipeline_degree,
        job.virtual_stages > 1 ? fmt::format(" times {} virtual ones", job.virtual_stages) : "", job.units(),
        job.spec.layers, job.units() / job.virtual_stages);
  if (!job.first_units.empty()) {
    if (static_cast<int64_t>(job.first_units.size()) != parts)
      return fail(Code::invalid_argument, "the partition has {} parts, must have {}", job.first_units.size(),
                  parts);
    if (job.first_units[0] != 0)
      return fail(Code::invalid_argument, "the partition begins with unit {}, must begin with unit 0",
                  job.first_units[0]);
    for (int part = 1; part <= parts; ++part) {
      const int first = part < parts ? job.first_units[part] : job.units();
      if (first <= job.first_units[part - 1] || first > job.units())
        return fail(Code::invalid_argument,
                    "part {} of the partition has no units: it begins with unit {} and the next one with {}; "
                    "first units must ascend and be below {}",
                    part - 1, job.first_units[part - 1], first, job.units());
    }
  }
  const int needed = job.schedule == Schedule::interleaved && job.pipeline_degree > 1 ? most_active(job) : 1;
  if (job.active_microbatches != 0 && job.active_microbatches < needed)
    return fail(Code::invalid_argument,
                "active_microbatches is {}, must be at least {} with this schedule, or 0 for what it wants",
                job.active_microbatches, needed);
  return {};
}

}  // namespace

Status Job::check() const {
  LOOM_TRY(spec.check());
  LOOM_TRY(check_step(*this));
  LOOM_TRY(at_least_one("ranks", world));
  LOOM_TRY(at_least_one("sharded_data_parallel_degree", degree));
  LOOM_TRY(at_least_one("reductions in flight", in_flight));
  LOOM_TRY(at_least_one("pipeline_degree", pipeline_degree));
  LOOM_TRY(at_least_one("tensor_degree", tensor_degree));
  LOOM_TRY(at_least_one("virtual_stages", virtual_stages));
  LOOM_TRY(at_least_one("rows of the head at a time", table.head_rows));
  if (world % (int64_t{pipeline_degree} * tensor_degree) != 0)
    return fail(Code::invalid_argument,
                "pipeline_degree · tensor_degree is {} · {}, must divide the {} ranks", pipeline_degree,
                tensor_degree, world);
  LOOM_TRY(layout().check());
  if (shard_optimizer_only && degree == 1)
    return fail(
        Code::invalid_argument,
        "shard_optimizer_state needs a sharded_data_parallel_degree above 1: the ranks that share the state");
  LOOM_TRY(model::check_split(spec, tensor_degree));
  if (!prescaled_batch && batch % tensor_degree != 0)
    return fail(
        Code::invalid_argument,
        "a microbatch has {} sequences, must be a multiple of tensor_degree, {}, for each tensor rank "
        "to read a part of them; with prescaled_batch: true each reads all",
        batch, tensor_degree);
  if (divides_rows && batch * tokens % tensor_degree != 0)
    return fail(
        Code::invalid_argument,
        "a microbatch has {} · {} tokens, must be a multiple of tensor_degree, {}, to divide its rows "
        "(optimize: memory); optimize: speed does not need that",
        batch, tokens, tensor_degree);
  if (packed && (!spec.causal || spec.objective().rows != model::HeadRows::all))
    return fail(Code::invalid_argument,
                "a sequence holds several texts (data.packing) only in causal models, and the task is {}",
                spec.objective().name);
  if (tokens > spec.context)
    return fail(Code::invalid_argument,
                "the sequence length (data.sequence_length) is {}, must be at most the model's context, {}",
                tokens, spec.context);
  LOOM_TRY(not_negative("activation_loading_horizon", loading_horizon));
  LOOM_TRY(not_negative("activation_checkpointing", checkpoint_group));
  LOOM_TRY(not_negative("prefetch", prefetch));
  LOOM_TRY(not_negative("active_microbatches", active_microbatches));
  if (checkpoint_every < 1 || (checkpoint_every > 1 && checkpoint_group > 1))
    return fail(Code::invalid_argument,
                "of every {} blocks {} are recomputed; must be one of every so many, or groups of all",
                checkpoint_every, checkpoint_group);
  return check_pipeline(*this);
}

std::vector<Part> parts_of(const Job& job) {
  const int count = job.pipeline_degree * job.virtual_stages, units = job.units();
  const auto first = [&](int part) {
    if (part == count) return units;
    return job.first_units.empty() ? static_cast<int>(int64_t{part} * units / count) : job.first_units[part];
  };
  std::vector<Part> parts;
  for (int part = 0; part < count; ++part)
    parts.push_back({part, part % job.pipeline_degree, first(part), first(part + 1)});
  return parts;
}

std::vector<int> owned_units(const Job& job, int stage) {
  std::vector<int> units;
  for (const Part& part : parts_of(job))
    if (part.stage == stage)
      for (int unit = part.begin; unit < part.end; ++unit) units.push_back(unit);
  return units;
}

bool holds_copy(const Job& job, int stage) {
  return job.spec.tied && job.pipeline_degree > 1 && stage == job.pipeline_degree - 1;
}

}  // namespace loom::program
