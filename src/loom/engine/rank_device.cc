// The host with its workers, or a GPU with kernels, products and scratch memory.
#include "engine/rank_device.h"

#include "base/check.h"
#include "device/cuda/compute.h"
#include "device/host.h"

namespace loom::engine {
namespace {

constexpr int64_t kTransferBytes = 8 << 20;  // of each of two pinned buffers

}  // namespace

struct RankDevice::Gpu {
  bool strict = false;
  std::unique_ptr<cuda::Kernels> kernels;
  std::unique_ptr<cuda::Products> products;
  std::unique_ptr<cuda::Attentions> attentions;
  std::unique_ptr<cuda::Compute> compute;
};

RankDevice::RankDevice(int threads) : workers_(threads) {}

RankDevice::~RankDevice() {
  transfer_.reset();
  if (queue_ != nullptr) (void)queue_->drain();  // what failed was said before
  times_.reset();
  gpu_.reset();
  queue_.reset();
}

Result<std::unique_ptr<RankDevice>> RankDevice::create(const Where& where, bool strict) {
  if (where.threads < 1)
    return fail(Code::invalid_argument, "threads is {}, must be at least 1", where.threads);
  std::unique_ptr<RankDevice> own(new RankDevice(where.threads));
  LOOM_TRY(own->workers_.started());
  if (where.gpu >= 0) {
    LOOM_TRY(own->open_gpu(where.gpu, strict));
  } else {
    own->device_ = std::make_unique<device::Host>();
    Result<std::unique_ptr<device::Queue>> queue = own->device_->make_queue();
    LOOM_TRY(queue.status());
    own->queue_ = queue.take();
  }
  Result<device::Transfer> transfer = device::Transfer::create(*own->device_, *own->queue_, kTransferBytes);
  LOOM_TRY(transfer.status());
  own->transfer_ = std::make_unique<device::Transfer>(transfer.take());
  return own;
}

Status RankDevice::open_gpu(int ordinal, bool strict) {
  Result<std::unique_ptr<cuda::Device>> opened = cuda::Device::open(ordinal);
  LOOM_TRY(opened.status());
  cuda::Device& device = **opened;
  device_ = opened.take();
  Result<std::unique_ptr<device::Queue>> queue = device.make_queue();
  LOOM_TRY(queue.status());
  queue_ = queue.take();
  auto gpu = std::make_unique<Gpu>();
  Result<std::unique_ptr<cuda::Kernels>> kernels = cuda::Kernels::load(device);
  LOOM_TRY(kernels.status());
  gpu->kernels = kernels.take();
  // What is timed may differ from run to run, and so may the bits of a sum.
  Result<std::unique_ptr<cuda::Products>> products =
      cuda::Products::create(device, {.split_k = !strict, .prefers_first = strict});
  LOOM_TRY(products.status());
  gpu->products = products.take();
  Result<std::unique_ptr<cuda::Compute>> compute =
      cuda::Compute::create(device, *queue_, *gpu->kernels, *gpu->products);
  LOOM_TRY(compute.status());
  gpu->compute = compute.take();
  gpu->strict = strict;
  gpu_ = std::move(gpu);
  return {};
}

device::Context RankDevice::context() {
  if (on_gpu()) return *gpu_->compute;
  return workers_;
}

std::string RankDevice::choices() const { return on_gpu() ? gpu_->products->choices() : ""; }

Status RankDevice::adopt(const std::string& choices) {
  return on_gpu() && !choices.empty() ? gpu_->products->adopt(choices).status() : Status();
}

Status RankDevice::attend_by_cudnn(const cuda::AttentionGraphShape& shape) {
  Result<std::unique_ptr<cuda::Attentions>> attentions =
      cuda::Attentions::create(static_cast<cuda::Queue&>(*queue_), gpu_->strict);
  LOOM_TRY(attentions.status());
  gpu_->attentions = attentions.take();
  LOOM_TRY(gpu_->attentions->prepare(shape));
  gpu_->compute->attend_by(gpu_->attentions.get());
  (void)gpu_->compute->prepare_attention(shape);
  return queue_->status();
}

void RankDevice::attend_by_kernels() {
  gpu_->compute->attend_by(nullptr);
  gpu_->attentions.reset();
}

Status RankDevice::end_preparing() {
  if (on_gpu()) gpu_->compute->end_preparing();
  return queue_->drain();
}

void RankDevice::time_kernels(bool on) {
  if (on) times_ = std::make_unique<cuda::KernelTimes>(static_cast<cuda::Queue&>(*queue_));
  gpu_->compute->time_with(on ? times_.get() : nullptr);
  if (!on) times_.reset();
}

int64_t RankDevice::memory_bytes() const {
  if (!on_gpu()) return static_cast<int64_t>(workers_.scratch_bytes());
  return gpu_->compute->memory_bytes() + (gpu_->attentions != nullptr ? gpu_->attentions->memory_bytes() : 0);
}

}  // namespace loom::engine
