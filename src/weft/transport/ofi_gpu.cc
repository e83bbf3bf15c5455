// The libfabric transport's GPUDirect: rails that reach GPU memory themselves, the check that they do, and
// puts from and into such memory. Only the registration of these puts differs from that of host memory.
#include "base/log.h"
#include "device/cuda/deferred_free.h"
#include "device/cuda/device.h"
#include "transport/ofi.h"

namespace weft::transport {

using namespace ofi;

namespace cuda = device::cuda;

/// Opens the rails with FI_HMEM, or leaves none open and says why.
Status OfiTransport::open_rails_for_gpu(const std::vector<Info>& plain) {
  if (options_.messages_only) return fail(Code::unsupported, "puts travel as messages");
  auto device = cuda::Device::open(options_.cuda_device);
  if (!device) return device.status();
  WEFT_TRY((*device)->orders_network_writes());
  Result<std::vector<Info>> infos = with_gpu_memory(plain);
  if (!infos) return infos.status();
  Status opened = open_rails(infos.take());
  if (opened.ok()) opened = register_a_gpu_block();
  if (opened.ok()) return {};
  gpu_registrations_.reset();
  registrations_.reset();
  rails_.clear();
  return opened;
}

/// Providers offer FI_HMEM for any kind of device, also where there is no CUDA device: only a trial shows.
Status OfiTransport::register_a_gpu_block() {
  constexpr size_t kBytes = 64 << 10;
  std::vector<RegistrationDomain> domains;
  for (const auto& rail : rails_) domains.push_back(rail->registration_domain());
  gpu_registrations_ = std::make_unique<GpuRegistrations>(std::move(domains));
  const cuda::Scope scope(**cuda::Device::open(options_.cuda_device));
  const cuda::Driver& d = **cuda::driver();
  cuda::DevicePointer block = 0;
  WEFT_TRY(cuda::check(d.mem_alloc(&block, kBytes), "GPU memory to try GPUDirect with (cuMemAlloc)"));
  auto registration = gpu_registrations_->acquire(reinterpret_cast<const void*>(block), kBytes);
  if (registration) gpu_registrations_->release(*registration);
  gpu_registrations_->drop_idle();  // before its memory
  cuda::DeferredFree::instance().add_block(**cuda::Device::open(options_.cuda_device),
                                           cuda::BlockKind::device, reinterpret_cast<std::byte*>(block),
                                           kBytes);
  return registration.status();
}

Status OfiTransport::gpu_direct_with(int peer) const {
  if (!why_no_gpu_.ok() || peer == rank_) return why_no_gpu_;
  if (peers_[static_cast<size_t>(peer)].takes_gpu) return {};
  return fail(Code::unsupported, "rank {} does not offer it; its log says why (WEFT_LOG=info)", peer);
}

Result<RemoteBuffer> OfiTransport::expose_gpu(void* address, size_t bytes) {
  WEFT_TRY(Status(why_no_gpu_));
  if (bytes == 0) return RemoteBuffer{.address = reinterpret_cast<uint64_t>(address)};
  Result<Registration*> registration = gpu_registrations_->acquire(address, bytes);
  if (!registration) return registration.status();
  return hold_exposure(*gpu_registrations_, *registration, address, bytes);
}

Status OfiTransport::takes_dma_bufs() const {
  WEFT_TRY(Status(why_no_gpu_));
  return takes_files_of_gpu_memory();
}

Result<RemoteBuffer> OfiTransport::expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) {
  WEFT_TRY(takes_dma_bufs());
  if (bytes == 0) return RemoteBuffer{.address = reinterpret_cast<uint64_t>(address)};
  Result<Registration*> registration = gpu_registrations_->acquire_file(address, bytes, {fd, offset});
  if (!registration) return registration.status();
  return hold_exposure(*gpu_registrations_, *registration, address, bytes);
}

Result<Progress> OfiTransport::put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                       const RemoteBuffer& target, uint64_t offset, Completion* done) {
  WEFT_TRY(Status(why_no_gpu_));
  if (bytes > 0 && !reachable_by_writes(target))
    return fail(Code::invalid_usage, "rank {} has not registered the target of a put of GPU memory", peer);
  return start_put(peer, envelope, source, true, bytes, target, offset, done);
}

void OfiTransport::drop_unexposed_gpu() {
  if (gpu_registrations_) gpu_registrations_->drop_idle();
}

GpuRegistrations::Statistics OfiTransport::gpu_registrations() const {
  return gpu_registrations_ ? gpu_registrations_->statistics() : GpuRegistrations::Statistics();
}

}  // namespace weft::transport
