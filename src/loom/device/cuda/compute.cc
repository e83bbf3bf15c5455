// Kernels by name, and scratch memory that grows while it may.
#include "device/cuda/compute.h"

namespace loom::cuda {

Result<std::unique_ptr<Compute>> Compute::create(Device& device, device::Queue& queue, const Kernels& kernels,
                                                 Products& products) {
  std::unique_ptr<Compute> compute(new Compute(device, queue, kernels, products));
  Result<device::Memory> workspace = device.allocate(products.workspace_bytes());
  if (!workspace.ok()) return workspace.status().in("the workspace of cuBLASLt");
  compute->workspace_ = workspace.take();
  return compute;
}

void Compute::multiply(const Product& product) {
  if (preparing_) products_.prepare(queue_, product, workspace_.data());
  timed([&] { return to_string(product.shape); },
        [&] { products_.multiply(queue_, product, workspace_.data()); });
}

void* Compute::prepare_attention(const AttentionGraphShape& shape) {
  if (preparing_ && queue_.status().ok())
    if (const Status made = attentions_->prepare(shape); !made.ok()) refuse(made);
  return queue_.status().ok() ? scratch_bytes(attentions_->scratch_bytes(shape)) : nullptr;
}

void Compute::fill(void* to, std::byte value, int64_t bytes) {
  timed([] { return std::string("a fill"); }, [&] { queue_.fill(to, value, bytes); });
}

void Compute::copy(void* to, const void* from, int64_t bytes) {
  timed([] { return std::string("a copy"); }, [&] { queue_.copy(to, from, bytes); });
}

const Kernel* Compute::find(const std::string& name, size_t shared_bytes) {
  const auto known = found_.find(name);
  if (known != found_.end() && known->second.shared_bytes >= shared_bytes) return &known->second.kernel;
  if (!preparing_) {
    refuse(fail(Code::internal_error, "kernel {} with {} bytes of shared memory was not prepared", name,
                shared_bytes));
    return nullptr;
  }
  const Result<Kernel> found = kernels_.find(name, shared_bytes);
  if (!found.ok()) {
    refuse(found.status());
    return nullptr;
  }
  return &found_.insert_or_assign(name, Found{*found, shared_bytes}).first->second.kernel;
}

std::byte* Compute::scratch_bytes(int64_t bytes) {
  if (bytes <= scratch_.bytes()) return scratch_.data();
  if (!preparing_) {
    refuse(fail(Code::internal_error, "an operator needs {} bytes of scratch memory, {} were prepared", bytes,
                scratch_.bytes()));
    return nullptr;
  }
  if (!queue_.drain().ok()) return nullptr;  // all uses of the old memory have ended then
  scratch_ = device::Memory();
  Result<device::Memory> larger = device_.allocate(bytes);
  if (!larger.ok()) {
    refuse(larger.status().in("scratch memory of operators"));
    return nullptr;
  }
  scratch_ = larger.take();
  return scratch_.data();
}

}  // namespace loom::cuda
