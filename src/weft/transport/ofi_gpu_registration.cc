#include "transport/ofi_gpu_registration.h"

#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <random>

#include "device/cuda/device.h"
#include "transport/ofi_library.h"

namespace weft::transport::ofi {
namespace {

namespace cuda = device::cuda;

constexpr uintptr_t kGpuPage = 64 << 10;  // GPUs map their memory for others in pages of this size

/// The error of fi_mr_regattr, or 0 and a registration. `flags` says what `attributes` holds.
int register_with(const RegistrationDomain& domain, fi_mr_attr& attributes, uint64_t flags,
                  Fid<fid_mr>& region) {
  fid_mr* raw = nullptr;
  const int error = fi_mr_regattr(domain.domain, &attributes, flags, &raw);
  if (error != 0) return error;
  region.reset(raw);
  const int bound = bind_registration(domain, *region);
  if (bound != 0) region.reset();
  return bound;
}

fi_mr_attr attributes_for(const RegistrationDomain& domain, uint64_t key, int ordinal) {
  fi_mr_attr attributes{};
  attributes.iov_count = 1;
  attributes.access = kRegistrationAccess;
  attributes.requested_key = fitting_key(domain, key);
  attributes.iface = FI_HMEM_CUDA;
  attributes.device.cuda = ordinal;
  return attributes;
}

Result<Fid<fid_mr>> register_file(const RegistrationDomain& domain, void* base, size_t bytes, uint64_t key,
                                  int ordinal, const GpuFile& file) {
  WEFT_TRY(takes_files_of_gpu_memory());
  fi_mr_attr attributes = attributes_for(domain, key, ordinal);
  Fid<fid_mr> region;
#ifdef FI_MR_DMABUF
  fi_mr_dmabuf buffer{};
  buffer.fd = file.fd;
  buffer.offset = file.offset;
  buffer.len = bytes;
  buffer.base_addr = static_cast<std::byte*>(base) - file.offset;  // where the whole dma-buf would begin
  attributes.dmabuf = &buffer;
  const int error = register_with(domain, attributes, FI_MR_DMABUF, region);
  if (error != 0) return fail(Code::unsupported, "as a dma-buf: {}", library().strerror(-error));
#else
  (void)base, (void)bytes, (void)file, (void)attributes;  // does not come here
#endif
  return region;
}

/// Registers through a dma-buf of the driver, for providers that cannot ask the driver themselves.
Result<Fid<fid_mr>> register_by_driver(const RegistrationDomain& domain, void* base, size_t bytes,
                                       uint64_t key, int ordinal) {
  WEFT_TRY(takes_files_of_gpu_memory());
  auto made = cuda::make_dma_buf(base, bytes);  // closed here: the registration holds the memory by itself
  if (!made) return made.status();
  return register_file(domain, base, bytes, key, ordinal, {.fd = made->file.get(), .offset = made->offset});
}

Result<cuda::Place> locate_on_device(const void* address) {
  auto place = cuda::locate(address);
  if (!place || place->kind == cuda::Place::Kind::device) return place;
  return fail(Code::invalid_pointer, "{} is no memory of a CUDA device, or was freed", address);
}

}  // namespace

Status takes_files_of_gpu_memory() {
#ifdef FI_MR_DMABUF
  if (FI_VERSION_LT(library().version(), FI_VERSION(1, 20)))
    return fail(Code::unsupported, "this libfabric is older than 1.20, which takes dma-bufs");
  return {};
#else
  return fail(Code::unsupported, "Weft was built with a libfabric older than 1.20, which takes dma-bufs");
#endif
}

Result<Fid<fid_mr>> register_gpu_memory(const RegistrationDomain& domain, void* base, size_t bytes,
                                        uint64_t key, int ordinal) {
  const iovec range{base, bytes};
  fi_mr_attr attributes = attributes_for(domain, key, ordinal);
  attributes.mr_iov = &range;
  Fid<fid_mr> region;
  const int error = register_with(domain, attributes, 0, region);
  if (error == 0) return region;
  Result<Fid<fid_mr>> as_file = register_by_driver(domain, base, bytes, key, ordinal);
  if (as_file) return as_file;
  return fail(Code::unsupported,
              "the network cannot register {} bytes of GPU memory at {}: {} (is the nvidia-peermem module "
              "loaded?); {}",
              bytes, base, library().strerror(-error), as_file.status().message());
}

GpuRegistrations::GpuRegistrations(std::vector<RegistrationDomain> domains, size_t kept)
    : domains_(std::move(domains)),
      kept_(kept),
      next_key_(uint64_t{std::random_device{}()} << 32 | std::random_device{}()) {}

GpuRegistrations::Entry* GpuRegistrations::covering(uintptr_t first, uintptr_t last, uint64_t buffer_id) {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    const Registration& range = *entry.registration;
    return !entry.gone && entry.buffer_id == buffer_id && range.base() <= first &&
           range.base() + range.bytes() >= last;
  });
  return found == entries_.end() ? nullptr : &*found;
}

Result<Registration*> GpuRegistrations::acquire(const void* address, size_t bytes) {
  auto place = locate_on_device(address);
  if (!place) return place.status();
  uintptr_t first = reinterpret_cast<uintptr_t>(address), last = first + bytes;
  if (Entry* known = covering(first, last, place->buffer_id)) {
    ++statistics_.hits;
    ++known->registration->users_;
    known->last_used = ++clock_;
    return known->registration.get();
  }
  ++statistics_.misses;
  close_stale();
  if (place->bytes > 0) {  // whole pages of the allocation, so that its neighbours hit
    first = std::max(first / kGpuPage * kGpuPage, place->base);
    last = std::min((last + kGpuPage - 1) / kGpuPage * kGpuPage, place->base + place->bytes);
  }
  return add(first, last, *place, nullptr);
}

Result<Registration*> GpuRegistrations::acquire_file(const void* address, size_t bytes, const GpuFile& file) {
  auto place = locate_on_device(address);
  if (!place) return place.status();
  ++statistics_.misses;
  close_stale();
  const auto first = reinterpret_cast<uintptr_t>(address);
  return add(first, first + bytes, *place, &file);
}

/// Registers [first, last) for one user: by the dma-buf that the user has, or by address.
Result<Registration*> GpuRegistrations::add(uintptr_t first, uintptr_t last, const cuda::Place& place,
                                            const GpuFile* file) {
  auto fresh = std::make_unique<Registration>();
  fresh->base_ = first;
  fresh->bytes_ = last - first;
  fresh->users_ = 1;
  void* const base = reinterpret_cast<void*>(first);
  for (const RegistrationDomain& domain : domains_) {
    Result<Fid<fid_mr>> region =
        file ? register_file(domain, base, last - first, next_key_++, place.ordinal, *file)
             : register_gpu_memory(domain, base, last - first, next_key_++, place.ordinal);
    if (!region) {
      ++statistics_.failures;
      return region.status();
    }
    fresh->regions_.push_back(region.take());
  }
  entries_.push_back({std::move(fresh), place.buffer_id, ++clock_});
  return entries_.back().registration.get();
}

void GpuRegistrations::release(Registration* registration) {
  if (--registration->users_ > 0) return;
  std::erase_if(entries_, [&](const Entry& e) { return e.registration.get() == registration && e.gone; });
  const auto idle =
      std::ranges::count_if(entries_, [](const Entry& e) { return e.registration->users_ == 0; });
  if (static_cast<size_t>(idle) > kept_) close_oldest();
}

void GpuRegistrations::close_oldest() {
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (it->registration->users_ == 0 && (oldest == entries_.end() || it->last_used < oldest->last_used))
      oldest = it;
  if (oldest != entries_.end()) entries_.erase(oldest);
}

/// Closes registrations whose memory is gone. Called after a miss, which often means that buffers have
/// changed.
void GpuRegistrations::close_stale() {
  for (Entry& entry : entries_) {
    const auto place = cuda::locate(reinterpret_cast<const void*>(entry.registration->base()));
    const bool there =
        place && place->kind == cuda::Place::Kind::device && place->buffer_id == entry.buffer_id;
    if (!there && !entry.gone) entry.gone = true, ++statistics_.stale;
  }
  std::erase_if(entries_, [](const Entry& e) { return e.gone && e.registration->users_ == 0; });
}

void GpuRegistrations::drop_idle() {
  std::erase_if(entries_, [](const Entry& e) { return e.registration->users_ == 0; });
}

}  // namespace weft::transport::ofi
