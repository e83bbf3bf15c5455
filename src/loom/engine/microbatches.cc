// From what the caller filled in to what steps read.
#include "engine/microbatches.h"

#include <algorithm>

#include "engine/weft_call.h"

namespace loom::engine {

void Microbatches::take_memory(std::byte* there) {
  there_ = reinterpret_cast<int32_t*>(there);
  arrays_.resize(static_cast<size_t>(job_.microbatches));
}

void Microbatches::load(int microbatch) {
  auto* const derived =
      reinterpret_cast<std::byte*>(there_ + 2 * job_.microbatches * rows()) + microbatch * layout_.bytes();
  arrays_[static_cast<size_t>(microbatch)] = layout_.fill(
      tokens(microbatch).data(), targets(microbatch).data(), only_row_, window_.here(derived), derived);
  window_.upload(tokens_there(microbatch), 2 * rows() * static_cast<int64_t>(sizeof(int32_t)));
  window_.upload(derived, layout_.bytes());
}

Status Microbatches::check_targets(int microbatch) const {
  if (job_.spec.objective().rows != model::HeadRows::with_targets || job_.targets == 0) return {};
  const std::span<int32_t> all = targets(microbatch);
  const int64_t count = std::count_if(all.begin(), all.end(), [](int32_t target) { return target >= 0; });
  if (count <= job_.batch * job_.targets) return {};
  return fail(Code::invalid_argument,
              "microbatch {} has {} targets, but the job has {} of each of {} sequences", microbatch, count,
              job_.targets, job_.batch);
}

Status Microbatches::gather(int tensor_rank, weftComm_t tensor, weftStream_t stream) const {
  const int64_t part = rows() / job_.tensor_degree;
  for (int m = 0; m < job_.microbatches; ++m)
    for (const std::span<int32_t> all : {tokens(m), targets(m)})
      LOOM_TRY_WEFT(weftAllGather(all.data() + tensor_rank * part, all.data(), static_cast<size_t>(part),
                                  weftInt32, tensor, stream));
  return {};
}

}  // namespace loom::engine
