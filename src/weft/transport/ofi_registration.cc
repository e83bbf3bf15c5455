// The registration cache: search, registration on every rail, release by the last user.
#include "transport/ofi_registration.h"

#include <rdma/fi_errno.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "transport/ofi_library.h"

namespace weft::transport::ofi {

namespace {
uintptr_t page_bytes() {
  static const uintptr_t bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
}  // namespace

uint64_t fitting_key(const RegistrationDomain& domain, uint64_t key) {
  if (domain.provider_keys) return 0;
  return domain.key_bytes < sizeof(key) ? key & ((uint64_t{1} << (8 * domain.key_bytes)) - 1) : key;
}

int bind_registration(const RegistrationDomain& domain, fid_mr& region) {
  if (!domain.endpoint) return 0;
  const int error = fi_mr_bind(&region, &domain.endpoint->fid, 0);
  return error == 0 ? fi_mr_enable(&region) : error;
}

Result<Fid<fid_mr>> register_memory(const RegistrationDomain& domain, void* base, size_t bytes,
                                    uint64_t key) {
  fid_mr* raw = nullptr;
  int error = fi_mr_reg(domain.domain, base, bytes, kRegistrationAccess, 0, fitting_key(domain, key), 0, &raw,
                        nullptr);
  Fid<fid_mr> region(error == 0 ? raw : nullptr);
  if (error == 0) error = bind_registration(domain, *region);
  if (error == 0) return region;
  const bool gone = error == -FI_EFAULT;
  return fail(gone ? Code::invalid_usage : Code::system_error,
              "cannot register {} bytes at {} with the network: {}{}", bytes, base,
              library().strerror(-error),
              gone                  ? ": the buffer was freed or unmapped, or was never valid"
              : error == -FI_ENOMEM ? " (is `ulimit -l`, the limit of locked memory, too low?)"
                                    : "");
}

// Keys that we choose start at a random number, so that a stray write of another job does not hit one by
// counting.
RegistrationCache::RegistrationCache(std::vector<RegistrationDomain> domains)
    : domains_(std::move(domains)),
      next_key_(uint64_t{std::random_device{}()} << 32 | std::random_device{}()) {}

Registration* RegistrationCache::covering(uintptr_t first, uintptr_t last) const {
  for (auto it = by_base_.upper_bound(first); it != by_base_.begin();) {
    --it;
    const Registration& candidate = *it->second;
    if (candidate.base() + longest_ < last) return nullptr;  // this one and all before it end too early
    if (candidate.base() + candidate.bytes() >= last) return it->second.get();
  }
  return nullptr;
}

Result<Registration*> RegistrationCache::acquire(const void* address, size_t bytes) {
  const uintptr_t mask = page_bytes() - 1;
  const uintptr_t first = reinterpret_cast<uintptr_t>(address) & ~mask;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(address) + bytes + mask) & ~mask;
  if (Registration* found = covering(first, last)) {
    ++statistics_.hits;
    ++found->users_;
    return found;
  }
  ++statistics_.misses;
  auto fresh = std::make_unique<Registration>();
  fresh->base_ = first;
  fresh->bytes_ = last - first;
  fresh->users_ = 1;
  for (const RegistrationDomain& domain : domains_) {
    Result<Fid<fid_mr>> region =
        register_memory(domain, reinterpret_cast<void*>(first), last - first, next_key_++);
    if (!region) {
      ++statistics_.failures;
      return region.status();
    }
    fresh->regions_.push_back(region.take());
  }
  longest_ = std::max(longest_, fresh->bytes_);
  return by_base_.emplace(first, std::move(fresh))->second.get();
}

void RegistrationCache::release(Registration* registration) {
  if (--registration->users_ > 0) return;
  auto [it, end] = by_base_.equal_range(registration->base());
  for (; it != end; ++it) {
    if (it->second.get() != registration) continue;
    by_base_.erase(it);
    return;
  }
}

}  // namespace weft::transport::ofi
