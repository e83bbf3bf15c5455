#include "gpu.h"

#include <map>
#include <mutex>

#include "base/fork.h"
#include "base/settings.h"
#include "device/cuda/queue.h"
#include "endpoint.h"

namespace weft::nccl_net::gpu {
namespace {

namespace cuda = device::cuda;

Reach look_at(const Device& device) {
  Reach reach;
  const Result<cuda::Device*> gpu = wanted();
  reach.direct = reach.files = gpu.status();
  if (device.way == Way::tcp)
    reach.direct = reach.files =
        fail(Code::unsupported, "sockets move host memory only (WEFT_NET=ofi may do more)");
  // NCCL's GPUs look into host memory, too, where there is no better way; and EFA's cards write there.
  const bool card_writes = device.provider == "efa";
  if (!reach.direct.ok() && !card_writes) return reach;
  const Result<std::shared_ptr<Endpoint>> endpoint = Endpoint::over_ofi(device);
  if (!endpoint.ok()) {
    reach.direct = reach.files = endpoint.status();
    return reach;
  }
  const std::lock_guard held((*endpoint)->mutex());
  const Result<transport::GpuDirect*> direct = (*endpoint)->gpu_direct();
  reach.direct = direct.status();
  reach.files = direct.ok() ? (*direct)->takes_dma_bufs() : direct.status();
  if (direct.ok() || card_writes) reach.in_order = (*endpoint)->writes_in_order();
  reach.needs_flush = direct.ok() && (*gpu)->needs_network_flush();
  return reach;
}

}  // namespace

Result<cuda::Device*> wanted() {
  if (settings().gpu_direct == "off") return fail(Code::unsupported, "WEFT_GPU_DIRECT is off");
  if (const auto driver = cuda::driver(); !driver.ok()) return driver.status();
  const Result<int> ordinal = cuda::Device::current();
  return ordinal.ok() ? cuda::Device::open(*ordinal) : ordinal.status();
}

Result<Reach> reach_of(const Device& device) {
  static ForkSafeMutex mutex;
  static std::map<const Device*, Reach>& known = *new std::map<const Device*, Reach>;
  const std::lock_guard lock(mutex);
  auto found = known.find(&device);
  if (found == known.end()) found = known.emplace(&device, look_at(device)).first;
  if (!found->second.direct.ok() && settings().gpu_direct == "on")
    return fail(
        Code::unsupported,
        "WEFT_GPU_DIRECT is on, but device {} cannot have GPUDirect: {}; with `auto`, NCCL goes through "
        "host memory instead",
        device.name, found->second.direct.message());
  return found->second;
}

Status copy_in(int ordinal, void* to, const void* from, size_t bytes) {
  static ForkSafeMutex mutex;
  static std::map<int, std::unique_ptr<cuda::Queue>>& queues =
      *new std::map<int, std::unique_ptr<cuda::Queue>>;
  const Result<cuda::Device*> device = cuda::Device::open(ordinal);
  if (!device.ok()) return device.status();
  const std::lock_guard lock(mutex);
  std::unique_ptr<cuda::Queue>& queue = queues[ordinal];
  if (!queue) {
    auto made = cuda::Queue::create(**device);
    if (!made.ok()) return made.status();
    queue = made.take();
  }
  const cuda::Scope scope(**device);
  WEFT_TRY(queue->copy(to, from, bytes));
  return queue->drain();
}

Status flush(int ordinal, std::span<const Buffer> buffers) {
  const Result<cuda::Device*> device = cuda::Device::open(ordinal);
  if (!device.ok()) return device.status();
  const cuda::Scope scope(**device);
  for (const Buffer& buffer : buffers) {
    if (buffer.number == 0) continue;
    const Result<cuda::Place> place = cuda::locate(buffer.address);
    if (!place.ok()) return place.status();
    if (place->kind != cuda::Place::Kind::device || place->buffer_id != buffer.number)
      return fail(Code::invalid_usage,
                  "GPU memory at {} was freed while it was registered: what came for it is lost",
                  buffer.address);
  }
  return (*device)->flush_network_writes();
}

}  // namespace weft::nccl_net::gpu
