#include "cuda/fake_network/gpu_network.h"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/settings.h"
#include "cuda/fake_driver/control.h"
#include "transport/ofi_library.h"

namespace weft::testing {
namespace {

constexpr int kAll = 1 << 30;
std::atomic<int> offered{0}, takeable{0};
std::atomic<bool> files_only{false};
std::atomic<uint64_t> registered{0}, closed{0}, written{0};

transport::ofi::Library libfabric;  // as it is

/// The provider's functions, which all fabrics, domains and endpoints of it share.
struct Real {
  fi_ops_fabric* fabric = nullptr;
  fi_ops_domain* domain = nullptr;
  fi_ops_mr* memory = nullptr;
  fi_ops_rma* rma = nullptr;
  fi_ops* region = nullptr;
} real;
fi_ops_fabric our_fabric;
fi_ops_domain our_domain;
fi_ops_mr our_memory;
fi_ops_rma our_rma;
fi_ops our_region;
std::mutex mutex;
std::map<fid*, std::pair<uintptr_t, size_t>> regions;  // of device memory

/// Where device memory's bytes are; null for what is none, or goes beyond its allocation.
void* bytes_behind(const void* device, size_t bytes) {
  static const auto ask = reinterpret_cast<decltype(&fake_cuda_bytes_behind)>([]() -> void* {
    void* driver = dlopen(settings().cuda_library.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return driver ? dlsym(driver, "fake_cuda_bytes_behind") : nullptr;
  }());
  return ask ? ask(device, bytes) : nullptr;
}

/// Replaces a table of functions by a copy in which some are ours. The first caller's is everybody's.
template <typename Table, typename Change>
void replace(Table*& table, Table*& original, Table& ours, Change change) {
  const std::lock_guard guard(mutex);
  if (table == &ours) return;
  if (!original) {
    original = table;
    ours = *table;
    change(ours);
  }
  if (table == original) table = &ours;
}

/// What the provider itself knows of.
fi_info* plain(const fi_info* info) {
  fi_info* copy = libfabric.dupinfo(info);
  for (uint64_t* caps : {&copy->caps, &copy->tx_attr->caps, &copy->rx_attr->caps, &copy->domain_attr->caps})
    *caps &= ~FI_HMEM;
  copy->domain_attr->mr_mode &= ~FI_MR_HMEM;
  return copy;
}

int close_region(fid* region) {
  {
    const std::lock_guard guard(mutex);
    closed += regions.erase(region);
  }
  return real.region->close(region);
}

#ifdef FI_MR_DMABUF
constexpr uint64_t kByFile = FI_MR_DMABUF;
#else
constexpr uint64_t kByFile = 0;
#endif

/// What is to be registered; nothing where the file is none.
iovec range_of(const fi_mr_attr& attributes, [[maybe_unused]] uint64_t flags) {
#ifdef FI_MR_DMABUF
  if (flags & FI_MR_DMABUF) {
    const fi_mr_dmabuf& file = *attributes.dmabuf;
    if (file.fd < 0) return {};
    return {static_cast<char*>(file.base_addr) + file.offset, file.len};
  }
#endif
  return attributes.mr_iov[0];
}

int register_memory(fid* domain, const fi_mr_attr* attributes, uint64_t flags, fid_mr** region) {
  if (attributes->iface != FI_HMEM_CUDA) return real.memory->regattr(domain, attributes, flags, region);
  const iovec range = range_of(*attributes, flags);
  void* const bytes = bytes_behind(range.iov_base, range.iov_len);
  if (!bytes) return -FI_EFAULT;
  if (takeable.load() <= 0 || (files_only && !(flags & kByFile))) return -FI_ENOSYS;
  --takeable;
  const int failed =
      real.memory->reg(domain, bytes, range.iov_len, attributes->access, attributes->offset,
                       attributes->requested_key, flags & ~kByFile, region, attributes->context);
  if (failed) return failed;
  ++registered;
  replace((*region)->fid.ops, real.region, our_region, [](fi_ops& ops) { ops.close = close_region; });
  const std::lock_guard guard(mutex);
  regions[&(*region)->fid] = {reinterpret_cast<uintptr_t>(range.iov_base), range.iov_len};
  return 0;
}

bool is_registered(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard guard(mutex);
  for (const auto& [region, range] : regions)
    if (begin >= range.first && begin + bytes <= range.first + range.second) return true;
  return false;
}

ssize_t write_data(fid_ep* endpoint, const void* source, size_t bytes, void* descriptor, uint64_t data,
                   fi_addr_t to, uint64_t address, uint64_t key, void* context) {
  if (void* const behind = bytes_behind(source, bytes)) {
    if (!is_registered(source, bytes)) return -FI_EFAULT;
    source = behind;
    descriptor = nullptr;  // the provider needs none for host memory
    ++written;
  }
  return real.rma->writedata(endpoint, source, bytes, descriptor, data, to, address, key, context);
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  fi_info* const known = plain(info);
  const int failed = real.domain->endpoint(domain, known, endpoint, context);
  libfabric.freeinfo(known);
  if (!failed)
    replace((*endpoint)->rma, real.rma, our_rma, [](fi_ops_rma& ops) { ops.writedata = write_data; });
  return failed;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  fi_info* const known = plain(info);
  const int failed = real.fabric->domain(fabric, known, domain, context);
  libfabric.freeinfo(known);
  if (failed || !(info->caps & FI_HMEM)) return failed;
  replace((*domain)->ops, real.domain, our_domain, [](fi_ops_domain& ops) { ops.endpoint = open_endpoint; });
  replace((*domain)->mr, real.memory, our_memory, [](fi_ops_mr& ops) { ops.regattr = register_memory; });
  return 0;
}

int getinfo(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints,
            fi_info** info) {
  if (!hints || !(hints->caps & FI_HMEM))
    return libfabric.getinfo(version, node, service, flags, hints, info);
  if (offered.fetch_sub(1) <= 0) return -FI_ENODATA;
  fi_info* const known = plain(hints);
  const int failed = libfabric.getinfo(version, node, service, flags, known, info);
  libfabric.freeinfo(known);
  if (failed) return failed;
  for (fi_info* each = *info; each; each = each->next) {
    each->caps |= FI_HMEM;
    each->domain_attr->mr_mode |= FI_MR_HMEM;
  }
  return 0;
}

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  const int failed = libfabric.fabric(attributes, fabric, context);
  if (!failed)
    replace((*fabric)->ops, real.fabric, our_fabric, [](fi_ops_fabric& ops) { ops.domain = open_domain; });
  return failed;
}

/// Takes libfabric's place in the library. Not before it is asked for, since loading libfabric takes time.
void stand_between() {
  static const bool there = [] {
    transport::ofi::Library* const table = transport::ofi::library_to_change();
    if (!table) return false;
    libfabric = *table;
    table->getinfo = getinfo;
    table->fabric = open_fabric;
#ifdef FI_MR_DMABUF
    // It takes dma-bufs by itself, whatever stands behind it.
    table->version = [] { return std::max<uint32_t>(libfabric.version(), FI_VERSION(1, 20)); };
#endif
    return true;
  }();
  (void)there;
}

[[maybe_unused]] const bool from_the_start = [] {
  const char* wish = std::getenv("FAKE_GPU_NETWORK");
  if (!wish || !*wish) return false;
  GpuNetwork::offer(kAll, std::atoi(wish) > 0 ? kAll : 0);
  return true;
}();

}  // namespace

void GpuNetwork::offer(int transports, int registrations) {
  stand_between();
  offered = transports;
  takeable = registrations;
}
void GpuNetwork::offer_nothing() {
  offered = takeable = 0;
  files_only = false;
}
void GpuNetwork::take_files_only(bool alone) { files_only = alone; }
uint64_t GpuNetwork::registrations() { return registered; }
uint64_t GpuNetwork::open_registrations() { return registered - closed; }
uint64_t GpuNetwork::writes() { return written; }

}  // namespace weft::testing
