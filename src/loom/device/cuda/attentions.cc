// Plans by shape.
#include "device/cuda/attentions.h"

#include <algorithm>

namespace loom::cuda {

Result<std::unique_ptr<Attentions>> Attentions::create(Queue& queue, bool deterministic) {
  const auto dnn = cudnn();
  if (!dnn.ok()) return dnn.status();
  const Scope scope(queue.device());
  std::unique_ptr<Attentions> attentions(new Attentions(queue, deterministic));
  LOOM_TRY(check_dnn((*dnn)->create(&attentions->handle_),
                     fmt::format("cuDNN on {} (cudnnCreate)", queue.device().describe())));
  LOOM_TRY(check_dnn((*dnn)->set_stream(attentions->handle_, queue.stream()), "cudnnSetStream"));
  return attentions;
}

Attentions::~Attentions() {
  const Scope scope(queue_.device());
  plans_.clear();
  if (handle_ != nullptr) (void)(*cudnn())->destroy(handle_);
}

std::string Attentions::library_name() {
  const Cudnn& dnn = **cudnn();
  return fmt::format("cuDNN {}.{}.{}", dnn.version[0], dnn.version[1], dnn.version[2]);
}

Result<AttentionGraphShape> Attentions::plan_shape(const ops::AttentionShape& s, ElementType type) const {
  const char* const lacks = s.alibi                     ? "ALiBi"
                            : s.window > 0              ? "window"
                            : s.begins != nullptr       ? "several texts in a sequence"
                            : s.dropout.probability > 0 ? "dropout"
                                                        : nullptr;
  if (lacks != nullptr) return fail(Code::unsupported, "cuDNN's attention has no {} here", lacks);
  return AttentionGraphShape{type,          s.batch,     s.tokens, s.heads,
                             s.key_heads(), s.head_size, s.causal, !s.causal && s.lengths != nullptr,
                             deterministic_};
}

Status Attentions::prepare(const AttentionGraphShape& shape) {
  if (plans_.contains(shape)) return {};
  const Scope scope(queue_.device());
  const DnnTarget target{.handle = handle_};
  Result<std::unique_ptr<AttentionForward>> forward = AttentionForward::create(shape, target);
  LOOM_TRY(forward.status());
  Result<std::unique_ptr<AttentionBackward>> backward = AttentionBackward::create(shape, target);
  LOOM_TRY(backward.status());
  Plans plans{forward.take(), backward.take(), {}};
  if (shape.padded) LOOM_TRY(fill_queries(shape, plans.queries));
  plans_.emplace(shape, std::move(plans));
  return {};
}

Status Attentions::fill_queries(const AttentionGraphShape& shape, device::Memory& queries) {
  const int64_t bytes = shape.batch * int64_t{sizeof(int32_t)};
  Result<device::Memory> there = queue_.device().allocate(bytes),
                         pinned = queue_.device().allocate_pinned(bytes);
  LOOM_TRY(there.status());
  LOOM_TRY(pinned.status());
  std::fill_n(pinned->as<int32_t>(), shape.batch, static_cast<int32_t>(shape.tokens));
  queue_.copy(there->data(), pinned->data(), bytes);
  LOOM_TRY(queue_.drain());
  queries = there.take();
  return {};
}

int64_t Attentions::scratch_bytes(const AttentionGraphShape& shape) const {
  const auto found = plans_.find(shape);
  if (found == plans_.end()) return 0;
  return std::max(found->second.forward->scratch_bytes(), found->second.backward->scratch_bytes());
}

const Attentions::Plans* Attentions::find(const ops::AttentionShape& shape, ElementType type) {
  if (!queue_.status().ok()) return nullptr;
  const Result<AttentionGraphShape> planned = plan_shape(shape, type);
  if (!planned.ok()) {
    (void)queue_.keep(planned.status());
    return nullptr;
  }
  const auto found = plans_.find(*planned);
  if (found != plans_.end()) return &found->second;
  (void)queue_.keep(fail(Code::internal_error, "{} was not prepared", to_string(*planned)));
  return nullptr;
}

void Attentions::forward(const ops::AttentionShape& shape, ElementType type, const AttentionArrays& arrays,
                         void* scratch) {
  const Plans* const plans = find(shape, type);
  if (plans == nullptr) return;
  const Scope scope(queue_.device());
  (void)queue_.keep(plans->forward->run(handle_, shape.scale, arrays.qkv, arrays.out, arrays.lse,
                                        {plans->queries.as<int32_t>(), shape.lengths}, scratch));
}

void Attentions::backward(const ops::AttentionShape& shape, ElementType type, const AttentionArrays& arrays,
                          void* scratch) {
  const Plans* const plans = find(shape, type);
  if (plans == nullptr) return;
  // The library need not write gradients of keys that no query sees.
  const bool padded = plans->queries.bytes() > 0;
  if (padded)
    queue_.fill(arrays.dqkv, std::byte(0), shape.batch * shape.tokens * shape.qkv_width() * size_of(type));
  const Scope scope(queue_.device());
  (void)queue_.keep(plans->backward->run(handle_, shape.scale, arrays.qkv, arrays.out, arrays.lse,
                                         arrays.dout, arrays.dqkv,
                                         {plans->queries.as<int32_t>(), shape.lengths}, scratch));
}

int64_t Attentions::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& [shape, plans] : plans_) bytes += plans.queries.bytes();
  return bytes;
}

}  // namespace loom::cuda
