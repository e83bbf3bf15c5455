#include "cuda/fake_network/gpu_network.h"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_rma.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

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
  fi_ops_ep* endpoint = nullptr;
  fi_ops_mr* memory = nullptr;
  fi_ops_rma* rma = nullptr;
  fi_ops* region = nullptr;
} real;
fi_ops_fabric our_fabric;
fi_ops_domain our_domain;
#ifdef WEFT_OFI_ORDERS_WRITES
fi_ops_ep our_endpoint;
#endif
fi_ops_mr our_memory;
fi_ops_rma our_rma;
fi_ops our_region;

/// Device memory's pages, held for the network.
class Pages {
 public:
  Pages() = default;
  /// Those at `offset` of a file; without any where there is none.
  Pages(int fd, uint64_t offset, size_t bytes) {
    const auto page = static_cast<uint64_t>(getpagesize());
    const uint64_t first = offset / page * page;
    const size_t length = offset - first + bytes;
    void* const mapped =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(first));
    if (mapped == MAP_FAILED) return;
    mapped_ = mapped, length_ = length;
    bytes_ = static_cast<std::byte*>(mapped) + (offset - first);
  }
  std::byte* bytes() const { return bytes_; }
  /// Nobody's pages take their place: a provider over sockets finishes a write that it is taking in, where a
  /// card would refuse it.
  void let_go() const {
    mmap(mapped_, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
  }

 private:
  void* mapped_ = nullptr;
  size_t length_ = 0;
  std::byte* bytes_ = nullptr;
};

/// Of device memory.
struct Region {
  uintptr_t begin = 0;
  size_t bytes = 0;
  Pages pages;
  void* provider_descriptor = nullptr;
};
std::mutex mutex;
std::map<const void*, Region> regions;  // by registration, whose descriptor is its own address

/// The file in which device memory's bytes are, and where; -1 for what is none, or goes beyond its
/// allocation.
int file_behind(const void* device, size_t bytes, uint64_t* offset) {
  static const auto ask = reinterpret_cast<decltype(&fake_cuda_file_behind)>([]() -> void* {
    void* driver = dlopen(settings().cuda_library.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return driver ? dlsym(driver, "fake_cuda_file_behind") : nullptr;
  }());
  return ask ? ask(device, bytes, offset) : -1;
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
  const int failed = real.region->close(region);
  const std::lock_guard guard(mutex);
  const auto found = regions.find(region);
  if (failed || found == regions.end()) return failed;
  found->second.pages.let_go();
  regions.erase(found);
  ++closed;
  return 0;
}

#ifdef FI_MR_DMABUF
constexpr uint64_t kByFile = FI_MR_DMABUF;
#else
constexpr uint64_t kByFile = 0;
#endif

/// What is to be registered, with its pages: of the dma-buf, where it is by one.
Region region_of(const fi_mr_attr& attributes, [[maybe_unused]] uint64_t flags) {
  uint64_t offset = 0;
#ifdef FI_MR_DMABUF
  if (flags & FI_MR_DMABUF) {
    const fi_mr_dmabuf& file = *attributes.dmabuf;
    void* const begin = static_cast<char*>(file.base_addr) + file.offset;
    if (file_behind(begin, file.len, &offset) < 0) return {};
    return {reinterpret_cast<uintptr_t>(begin), file.len, Pages(file.fd, file.offset, file.len)};
  }
#endif
  const iovec& range = attributes.mr_iov[0];
  const int fd = file_behind(range.iov_base, range.iov_len, &offset);
  if (fd < 0) return {};
  return {reinterpret_cast<uintptr_t>(range.iov_base), range.iov_len, Pages(fd, offset, range.iov_len)};
}

int register_memory(fid* domain, const fi_mr_attr* attributes, uint64_t flags, fid_mr** region) {
  if (attributes->iface != FI_HMEM_CUDA) return real.memory->regattr(domain, attributes, flags, region);
  Region made = region_of(*attributes, flags);
  if (!made.pages.bytes()) return -FI_EFAULT;
  if (takeable.load() <= 0 || (files_only && !(flags & kByFile))) return made.pages.let_go(), -FI_ENOSYS;
  --takeable;
  const int failed =
      real.memory->reg(domain, made.pages.bytes(), made.bytes, attributes->access, attributes->offset,
                       attributes->requested_key, flags & ~kByFile, region, attributes->context);
  if (failed) return made.pages.let_go(), failed;
  ++registered;
  replace((*region)->fid.ops, real.region, our_region, [](fi_ops& ops) { ops.close = close_region; });
  made.provider_descriptor = std::exchange((*region)->mem_desc, &(*region)->fid);
  const std::lock_guard guard(mutex);
  regions[&(*region)->fid] = made;
  return 0;
}

/// What the provider is to write instead of device memory.
struct HostSource {
  const std::byte* bytes = nullptr;
  void* descriptor = nullptr;
};

/// By the write's registration; null if that is none of device memory, or does not cover the bytes.
HostSource registered_source(const void* descriptor, const void* address, size_t bytes) {
  const std::lock_guard guard(mutex);
  const auto found = regions.find(descriptor);
  if (found == regions.end()) return {};
  const Region& region = found->second;
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - region.begin;
  if (offset > region.bytes || bytes > region.bytes - offset) return {};
  return {region.pages.bytes() + offset, region.provider_descriptor};
}

ssize_t write_data(fid_ep* endpoint, const void* source, size_t bytes, void* descriptor, uint64_t data,
                   fi_addr_t to, uint64_t address, uint64_t key, void* context) {
  uint64_t offset = 0;
  if (const HostSource behind = registered_source(descriptor, source, bytes); behind.bytes) {
    source = behind.bytes;
    descriptor = behind.descriptor;
    ++written;
  } else if (file_behind(source, 1, &offset) >= 0) {
    return -FI_EFAULT;
  }
  return real.rma->writedata(endpoint, source, bytes, descriptor, data, to, address, key, context);
}

#ifdef WEFT_OFI_ORDERS_WRITES
/// What only EFA knows.
int set_option(fid* endpoint, int level, int name, const void* value, size_t bytes) {
  if (name != FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES)
    return real.endpoint->setopt(endpoint, level, name, value, bytes);
  const char* wish = std::getenv("FAKE_GPU_ORDER");
  return wish && std::atoi(wish) > 0 && bytes == sizeof(bool) ? 0 : -FI_EOPNOTSUPP;
}
#endif

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  fi_info* const known = plain(info);
  const int failed = real.domain->endpoint(domain, known, endpoint, context);
  libfabric.freeinfo(known);
  if (failed) return failed;
  replace((*endpoint)->rma, real.rma, our_rma, [](fi_ops_rma& ops) { ops.writedata = write_data; });
#ifdef WEFT_OFI_ORDERS_WRITES
  replace((*endpoint)->ops, real.endpoint, our_endpoint, [](fi_ops_ep& ops) { ops.setopt = set_option; });
#endif
  return 0;
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
  files_only = std::strcmp(wish, "files") == 0;
  const char* most = std::getenv("FAKE_GPU_REGISTRATIONS");
  const int registrations = most ? std::atoi(most) : kAll;
  GpuNetwork::offer(kAll, files_only || std::atoi(wish) > 0 ? registrations : 0);
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
