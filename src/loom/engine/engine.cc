// Engines: what is checked before one is made, and what follows from the job alone.
#include "engine/engine.h"

#include "device/cuda/operators.h"
#include "engine/attention_choice.h"
#include "engine/executor.h"
#include "engine/stream_waits.h"
#include "ops/tables.h"

namespace loom::engine {
namespace {

/// What CPUs can do, and GPUs cannot.
Status check_on_gpu(const program::Job& job, const Groups& groups) {
  LOOM_TRY(cuda::check_sizes(job.spec.width, job.spec.attention().head_size));
  if (job.spec.feed_forward % job.tensor_degree != 0)
    return fail(Code::unsupported,
                "tensor_degree is {}, and on GPUs it must divide model.feed_forward, {}: products of other "
                "shapes sum biases' gradients in another order, and copies of a bias would part",
                job.tensor_degree, job.spec.feed_forward);
  if (job.pipeline_degree == 1) return {};
  // A stage receives ahead: a call that waits for its result would keep the stage from sending.
  return calls_return_at_once(groups.moving(program::GroupKind::pipeline))
      .in("pipeline_degree must be 1 where CUDA streams do not wait for Weft");
}

}  // namespace

Result<format::FlatLayout> Engine::state_layout(int stage, int tensor, bool optimizer) const {
  std::vector<format::FlatBuffer> buffers;
  for (const int unit : program::owned_units(job_, stage))
    for (const std::string_view part : state_parts(job_, optimizer)) {
      const model::Unit& held = units_[static_cast<size_t>(unit)];
      buffers.push_back({state_part_name(held, part), static_cast<uint64_t>(held.elements),
                         static_cast<uint64_t>(job_.shard(held))});
    }
  return format::FlatLayout::make(state_name(stage, tensor), job_.degree, std::move(buffers));
}

Result<std::unique_ptr<Engine>> Engine::create(const program::Job& job, const Groups& groups,
                                               const Where& where, const std::string& tier_folder) {
  if (to_string(job.layout()) != to_string(groups.layout()))
    return fail(Code::invalid_argument, "the job is for {}, the groups for {}", to_string(job.layout()),
                to_string(groups.layout()));
  if (where.threads < 1)
    return fail(Code::invalid_argument, "threads is {}, must be at least 1", where.threads);
  if (where.gpu != groups.gpu())
    return fail(Code::invalid_argument, "the engine is for GPU {}, the groups for GPU {} (-1: none)",
                where.gpu, groups.gpu());
  LOOM_TRY(ops::check_instructions());
  if (where.gpu >= 0) LOOM_TRY(groups.agree(check_on_gpu(job, groups)));
  Result<std::unique_ptr<RankDevice>> device = RankDevice::create(where, job.strict);
  if (where.gpu >= 0) LOOM_TRY(groups.agree(device.status()));
  LOOM_TRY(device.status());
  const Result<ChosenAttention> attention = choose_attention(job, groups, where, **device);
  LOOM_TRY(attention.status());
  program::Job there = job;
  there.table.of_gpu = where.gpu >= 0;
  return program::with_type(job.precision, [&]<typename T>(T) -> Result<std::unique_ptr<Engine>> {
    auto executor = std::make_unique<Executor<T>>(there, groups, device.take());
    static_cast<Engine&>(*executor).attention_ = *attention;
    LOOM_TRY(executor->prepare(tier_folder));
    return std::unique_ptr<Engine>(std::move(executor));
  });
}

}  // namespace loom::engine
