#include "domain.h"

#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "objects.h"

namespace weft::fake_efa {
namespace {

std::atomic<uint64_t> registrations{0};
std::atomic<uint64_t> domains{0};

/// A card pins the pages that it is given.
bool is_mapped(const void* base, size_t bytes) {
  const auto page = static_cast<uintptr_t>(getpagesize());
  const uintptr_t first = reinterpret_cast<uintptr_t>(base) / page * page;
  const size_t length = reinterpret_cast<uintptr_t>(base) + bytes - first;
  std::vector<unsigned char> resident((length + page - 1) / page);
  return mincore(reinterpret_cast<void*>(first), length, resident.data()) == 0;
}

int register_range(fid* domain_fid, const void* base, size_t bytes, uint64_t access, uint64_t offset,
                   uint64_t /*requested_key*/, uint64_t flags, fid_mr** made, void* /*context*/) {
  Domain& domain = *static_cast<Domain*>(reinterpret_cast<fid_domain*>(domain_fid));
  if (offset != 0 || flags != 0) return -FI_EINVAL;
  const Use use(domain);
  return domain.add_region(base, bytes, access, made);
}

int register_attributes(fid* domain, const fi_mr_attr* attributes, uint64_t flags, fid_mr** made) {
  if (attributes->iov_count != 1 || attributes->iface != FI_HMEM_SYSTEM) return -FI_ENOSYS;
  const iovec& range = attributes->mr_iov[0];
  return register_range(domain, range.iov_base, range.iov_len, attributes->access, attributes->offset,
                        attributes->requested_key, flags, made, attributes->context);
}

int close_region(fid* region_fid) {
  auto* region = static_cast<Region*>(reinterpret_cast<fid_mr*>(region_fid));
  const Use use(*region->domain);
  region->domain->remove_region(region);
  return 0;
}

}  // namespace

Domain::Domain(int rail_number) : fid_domain{}, rail(rail_number), keys_(0x6b657973 + domains++) {
  static fi_ops_mr memory_ops = {
      .size = sizeof memory_ops, .reg = register_range, .regv = nullptr, .regattr = register_attributes};
  mr = &memory_ops;
}

int Domain::add_region(const void* base, size_t bytes, uint64_t access, fid_mr** made) {
  static fi_ops region_ops = object_ops(close_region);
  if (!is_mapped(base, bytes)) return -FI_EFAULT;
  if (registrations++ >= settings().registrations) return -FI_ENOMEM;
  auto* region = new Region;
  region->fid = {.fclass = FI_CLASS_MR, .context = nullptr, .ops = &region_ops};
  region->domain = this;
  region->number = registrations;
  region->base = reinterpret_cast<uintptr_t>(base);
  region->bytes = bytes;
  region->access = access;
  region->mem_desc = region;
  do region->key = keys_.number() >> 32;
  while (region->key == 0 || by_key_.contains(region->key));
  by_key_[region->key] = region;
  by_number_[region->number] = region;
  by_descriptor_[region] = region;
  *made = region;
  return 0;
}

void Domain::remove_region(Region* region) {
  by_key_.erase(region->key);
  by_number_.erase(region->number);
  by_descriptor_.erase(region);
  delete region;
}

uint64_t Domain::check_local(const void* descriptor, const void* address, size_t bytes) const {
  const auto found = by_descriptor_.find(descriptor);
  return found != by_descriptor_.end() && found->second->covers(reinterpret_cast<uintptr_t>(address), bytes)
             ? found->second->number
             : 0;
}

std::optional<uint64_t> Domain::target(uint64_t key, uint64_t address, size_t bytes) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || !(found->second->access & FI_REMOTE_WRITE)) return {};
  if (settings().offsets) address += found->second->base;
  return found->second->covers(address, bytes) ? std::optional(address) : std::nullopt;
}

Use::Use(Domain& domain) : domain_(domain) {
  if (!domain_.in_use.exchange(true)) return;
  std::fprintf(stderr, "fake efa: two threads are in calls of one domain (FI_THREAD_DOMAIN)\n");
  std::abort();
}

void place(uint64_t address, const void* bytes, size_t length) {
  if (length == 0) return;
  const iovec from = {const_cast<void*>(bytes), length}, to = {reinterpret_cast<void*>(address), length};
  if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) >= 0 || errno == EFAULT) return;
  std::memcpy(to.iov_base, bytes, length);  // where that call is forbidden
}

}  // namespace weft::fake_efa
