// RankDevice: with what a rank computes: its device, the queue of its operators, and their context. On CPUs
// the context is the workers, and an operator is done when it returns. On a GPU operators are queued.
//
// Preparing, on a GPU: see device/cuda/compute.h. It begins with preparing.
//
// No GPU has run it: what is tested is tested on a driver that stands in for CUDA's.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <string>

#include "base/workers.h"
#include "device/cuda/attention_graph.h"
#include "device/cuda/kernel_times.h"
#include "device/cuda/operators.h"
#include "device/transfer.h"
#include "engine/where.h"
#include "ops/operators.h"

namespace loom::engine {

class RankDevice {
 public:
  /// `strict`: products of a GPU add up in one order, whatever the shape of the job. Errors:
  /// invalid_argument (threads, or no such GPU), unsupported (no driver, no cuBLASLt, no kernels for the
  /// GPU), out_of_memory.
  static Result<std::unique_ptr<RankDevice>> create(const Where& where, bool strict);
  ~RankDevice();

  bool on_gpu() const { return gpu_ != nullptr; }
  device::Device& device() { return *device_; }
  /// Of the operators, in whose order they run.
  device::Queue& queue() { return *queue_; }
  device::Context context();
  Workers& workers() { return workers_; }
  template <typename T>
  const ops::Operators<T>& table() const {
    return on_gpu() ? cuda::operators<T>() : ops::operators<T>();
  }
  /// What of them is fused; null of CPUs.
  template <typename T>
  const ops::FusedOperators<T>* fused() const {
    return on_gpu() ? &cuda::fused_operators<T>() : nullptr;
  }
  /// Of state and files, through the queue.
  device::Transfer& transfer() { return *transfer_; }

  /// Of a GPU's products, as text, with the device and the library that they are for; "" of CPUs.
  std::string choices() const;
  Status adopt(const std::string& choices);
  /// cuDNN computes attention of that shape, from now on. Makes its plans, and allocates what they need.
  /// Errors: unsupported (no cuDNN, or none for the shape), out_of_memory.
  Status attend_by_cudnn(const cuda::AttentionGraphShape& shape);
  /// The kernels do.
  void attend_by_kernels();
  /// Waits for what was queued. From now on nothing is loaded or allocated. Errors: the queue's.
  Status end_preparing();

  /// On a GPU, all that operators queue is timed from now on, or no longer.
  void time_kernels(bool on);
  /// What comes from now on is part of this, where kernels are timed.
  void enter(const char* section) {
    if (times_ != nullptr) times_->enter(section);
  }
  /// Of what was timed since the last call. Waits for it.
  Result<std::vector<cuda::KernelTime>> take_times() { return times_->take(); }

  /// Bytes of its memory besides the arena: scratch memory of operators.
  int64_t memory_bytes() const;

 private:
  struct Gpu;
  explicit RankDevice(int threads);
  Status open_gpu(int ordinal, bool strict);

  Workers workers_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Queue> queue_;
  std::unique_ptr<device::Transfer> transfer_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<cuda::KernelTimes> times_;
};

}  // namespace loom::engine
