#include "train/read_batch.h"

#include <algorithm>

namespace loom::train {

Status read_batch(engine::Engine& engine, const engine::Groups& groups, const text::BatchSource& batches,
                  int64_t step, int64_t counted) {
  const program::Job& job = engine.job();
  // Tensor ranks read a part each of a batch that is not prescaled, and exchange the parts in the step.
  const int readers = job.prescaled_batch ? 1 : job.tensor_degree;
  const int64_t count = job.batch / readers;
  const int64_t first = readers == 1 ? 0 : count * groups.coordinates().tensor;
  const auto part = [&](std::span<int32_t> all) {
    return all.subspan(static_cast<size_t>(first * job.tokens), static_cast<size_t>(count * job.tokens));
  };
  for (int m = 0; m < job.microbatches; ++m) {
    const int64_t begin =
        program::microbatch_number(job, groups.group(), groups.member(), m) * job.batch + first;
    const std::span<int32_t> targets = part(engine.targets(m));
    const Status read =
        batches.read(static_cast<uint64_t>(step), {begin, count}, part(engine.tokens(m)), targets);
    if (!read.ok()) groups.abort(read);  // the others would wait for this rank in the step
    LOOM_TRY(read);
    const int64_t kept = std::clamp<int64_t>(counted - begin, 0, count);
    std::ranges::fill(targets.subspan(static_cast<size_t>(kept * job.tokens)), text::kNoTarget);
  }
  return {};
}

}  // namespace loom::train
