// Attentions: attention by cuDNN on one queue, each shape planned once. prepare() makes the plans of both
// passes and what they need beside their arrays. The library chooses the kernels by rules of its own, without
// timing any, so the same library on the same device makes the same choice.
//
// No GPU has run it: cuDNN has made these plans from a description of a GPU, and they ran on a fake.
//
// Thread safety: one thread at a time.
#pragma once

#include <map>
#include <memory>

#include "device/cuda/attention_graph.h"
#include "device/cuda/device.h"
#include "ops/operators.h"

namespace loom::cuda {

/// The arrays of one pass, as Operators has them. Forward writes out and lse, backward dqkv.
struct AttentionArrays {
  const void* qkv = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  const void* dout = nullptr;
  void* dqkv = nullptr;
};

class Attentions {
 public:
  /// The queue outlives it. `deterministic`: the same gradients, bit for bit, in every run. Errors:
  /// cudnn()'s; system_error where the library refuses the device.
  static Result<std::unique_ptr<Attentions>> create(Queue& queue, bool deterministic);
  ~Attentions();
  Attentions(const Attentions&) = delete;
  Attentions& operator=(const Attentions&) = delete;

  /// The shape, as plans are made for it. Errors: unsupported (dropout, a window, ALiBi).
  Result<AttentionGraphShape> plan_shape(const ops::AttentionShape& shape, ElementType type) const;
  /// Makes the plans of both passes, unless it has them. Errors: check_attention()'s; unsupported (the
  /// library has no engine), out_of_memory.
  Status prepare(const AttentionGraphShape& shape);
  /// Bytes of scratch memory that a pass needs; 0 without plans.
  int64_t scratch_bytes(const AttentionGraphShape& shape) const;

  /// Queue a pass of a shape that is prepared; `scratch` has scratch_bytes(). The queue keeps failures.
  void forward(const ops::AttentionShape& shape, ElementType type, const AttentionArrays& arrays,
               void* scratch);
  void backward(const ops::AttentionShape& shape, ElementType type, const AttentionArrays& arrays,
                void* scratch);

  /// "cuDNN 9.19.0".
  static std::string library_name();
  /// Bytes of the device's memory that it keeps.
  int64_t memory_bytes() const;

 private:
  struct Plans {
    std::unique_ptr<AttentionForward> forward;
    std::unique_ptr<AttentionBackward> backward;
    device::Memory queries;  // AttentionLengths::queries
  };

  Attentions(Queue& queue, bool deterministic) : queue_(queue), deterministic_(deterministic) {}
  Status fill_queries(const AttentionGraphShape& shape, device::Memory& queries);
  /// Null, which the queue keeps as a failure, where there are none.
  const Plans* find(const ops::AttentionShape& shape, ElementType type);

  Queue& queue_;
  const bool deterministic_;
  DnnHandle* handle_ = nullptr;
  std::map<AttentionGraphShape, Plans> plans_;
};

}  // namespace loom::cuda
