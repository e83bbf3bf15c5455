// Compute: with what a GPU's operators run: a queue, the kernels, the plans of products, and scratch memory
// that one operator after the other uses. Another queue has a Compute of its own. Both may share Products,
// and each prepares by itself.
//
// Preparing. Every operator runs once, with the shapes it will have, before the first step. Then products get
// their plans, kernels are found, and scratch memory grows to what is needed. After that nothing is loaded or
// allocated, and an operator that would need more is a failure of the queue.
//
// Nothing here has run on a GPU so far.
//
// Thread safety: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "device/cuda/attentions.h"
#include "device/cuda/kernel_times.h"
#include "device/cuda/kernels.h"
#include "device/cuda/products.h"

namespace loom::cuda {

class Compute {
 public:
  /// All of these outlive it. It begins with preparing. Errors: out_of_memory.
  static Result<std::unique_ptr<Compute>> create(Device& device, device::Queue& queue, const Kernels& kernels,
                                                 Products& products);
  void end_preparing() { preparing_ = false; }

  Queue& queue() { return queue_; }
  /// Keeps a failure of an operator with the queue.
  void refuse(const Status& status) { (void)queue_.keep(status); }

  /// Queues a kernel.
  template <typename Arguments>
  void launch(const std::string& name, const LaunchShape& shape, const Arguments& arguments) {
    if (const Kernel* const kernel = find(name, shape.shared_bytes))
      timed([&] { return name; }, [&] { cuda::launch(queue_, *kernel, shape, arguments); });
  }
  template <typename Arguments>
  void launch(const std::string& name, const Arguments& arguments) {
    launch(name, arguments.shape(), arguments);
  }
  /// Queues a product.
  void multiply(const Product& product);
  /// Queues a product with an epilogue, or `apart`, which queues the same as a product and kernels: what
  /// Products::prefers() prefers.
  template <typename Apart>
  void multiply(const Product& product, const Apart& apart) {
    const bool has_epilogue =
        takes_epilogue(product) &&
        (preparing_ ? products_.prefers(queue_, product, workspace_.data(), apart) : products_.has(product));
    if (has_epilogue) multiply(product);
    else apart();
  }
  /// Queues work of a library by itself, which is timed under that name.
  template <typename Work>
  void call(const char* name, Work&& work) {
    timed([&] { return std::string(name); }, std::forward<Work>(work));
  }
  void fill(void* to, std::byte value, int64_t bytes);
  void copy(void* to, const void* from, int64_t bytes);

  /// From now on cuDNN computes attention; null: the kernels do. `attentions` are of the same queue.
  void attend_by(Attentions* attentions) { attentions_ = attentions; }
  Attentions* attentions() const { return attentions_; }
  /// Scratch memory for the plans of a shape. While it prepares, plans are made. Null where they or the
  /// memory cannot be had, which the queue keeps.
  void* prepare_attention(const AttentionGraphShape& shape);

  /// From now on all that is queued here is timed; null: it is not. `times` are of the same queue.
  void time_with(KernelTimes* times) { times_ = times; }

  /// Memory of this operator until the next one, its content undefined. Null where there is too little, which
  /// the queue keeps.
  template <typename T>
  T* scratch(int64_t count) {
    return reinterpret_cast<T*>(scratch_bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  /// The bytes of the device's memory that it keeps.
  int64_t memory_bytes() const { return workspace_.bytes() + scratch_.bytes(); }

 private:
  Compute(Device& device, device::Queue& queue, const Kernels& kernels, Products& products)
      : device_(device), queue_(static_cast<Queue&>(queue)), kernels_(kernels), products_(products) {}
  const Kernel* find(const std::string& name, size_t shared_bytes);
  /// Work that has a name, where somebody asks for it.
  template <typename Name, typename Work>
  void timed(Name&& name, Work&& work) {
    if (times_ != nullptr) times_->begin(name());
    work();
    if (times_ != nullptr) times_->end();
  }
  std::byte* scratch_bytes(int64_t bytes);

  struct Found {
    Kernel kernel;
    size_t shared_bytes;  // that it may be launched with
  };

  Device& device_;
  Queue& queue_;
  const Kernels& kernels_;
  Products& products_;
  KernelTimes* times_ = nullptr;
  Attentions* attentions_ = nullptr;
  bool preparing_ = true;
  std::map<std::string, Found> found_;
  device::Memory workspace_, scratch_;
};

}  // namespace loom::cuda
