// RegistrationCache: memory registrations with libfabric, on all rails at once. All users of the same pages
// at the same time share one. Registering costs tens of microseconds on a real NIC; finding a live
// registration costs nothing.
//
// A registration lives exactly as long as a user holds it. None is kept for a future user: a key of old pages
// would reach pages that were mapped anew, and the library cannot see pages go. A user that knows that its
// memory stays (a registered buffer, a window) holds the registration, and all uses inside it hit.
//
// Thread safety: none; as the transport's.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"

namespace weft::transport::ofi {

struct FidCloser {
  template <typename T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
/// Owns a libfabric object.
template <typename T>
using Fid = std::unique_ptr<T, FidCloser>;

/// Where memory is registered: one NIC.
struct RegistrationDomain {
  fid_domain* domain = nullptr;
  fid_ep* endpoint = nullptr;  // what registrations are bound to, if the provider asks for that
  bool provider_keys = false;  // the provider chooses the keys
  size_t key_bytes = 8;
};

/// `key` as a domain takes it: its own where the provider chooses, cut to what it has room for elsewhere.
uint64_t fitting_key(const RegistrationDomain& domain, uint64_t key);
/// Binds a fresh registration to the domain's endpoint, if it has to be. libfabric's error code, or 0.
int bind_registration(const RegistrationDomain& domain, fid_mr& region);
/// The uses of a registration: sends and receives, and writes of both ends.
inline constexpr uint64_t kRegistrationAccess = FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;

/// Registers memory for sending, receiving and being written; `key` is what to use if the provider has no
/// keys of its own. Errors: invalid_usage for memory that is not there, system_error otherwise.
Result<Fid<fid_mr>> register_memory(const RegistrationDomain& domain, void* base, size_t bytes, uint64_t key);

/// A range of whole pages, registered on every rail.
class Registration {
 public:
  uintptr_t base() const { return base_; }
  size_t bytes() const { return bytes_; }
  void* descriptor(size_t rail) const { return fi_mr_desc(regions_[rail].get()); }
  uint64_t key(size_t rail) const { return fi_mr_key(regions_[rail].get()); }
  int users() const { return users_; }

 private:
  friend class RegistrationCache;
  friend class GpuRegistrations;
  uintptr_t base_ = 0;
  size_t bytes_ = 0;
  int users_ = 0;
  std::vector<Fid<fid_mr>> regions_;  // by rail
};

/// The cache that a registration goes back to.
class RegistrationOwner {
 public:
  virtual void release(Registration* registration) = 0;

 protected:
  ~RegistrationOwner() = default;
};

class RegistrationCache final : public RegistrationOwner {
 public:
  struct Statistics {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t failures = 0;
  };

  /// One domain a rail.
  explicit RegistrationCache(std::vector<RegistrationDomain> domains);

  /// A registration that covers [address, address + bytes), bytes > 0; release() it once. Fails as
  /// register_memory() does.
  Result<Registration*> acquire(const void* address, size_t bytes);
  void release(Registration* registration) override;

  size_t live() const { return by_base_.size(); }
  const Statistics& statistics() const { return statistics_; }

 private:
  using ByBase = std::multimap<uintptr_t, std::unique_ptr<Registration>>;

  Registration* covering(uintptr_t first, uintptr_t last) const;

  std::vector<RegistrationDomain> domains_;
  ByBase by_base_;
  size_t longest_ = 0;  // no registration ever was longer: bounds the search
  uint64_t next_key_;
  Statistics statistics_;
};

/// Holds a registration; none at all where the provider needs none.
class RegistrationHold {
 public:
  RegistrationHold() = default;
  RegistrationHold(RegistrationOwner& owner, Registration* registration)
      : owner_(&owner), held_(registration) {}
  RegistrationHold(RegistrationHold&& other) noexcept
      : owner_(other.owner_), held_(std::exchange(other.held_, nullptr)) {}
  RegistrationHold& operator=(RegistrationHold&& other) noexcept {
    if (this != &other) reset(), owner_ = other.owner_, held_ = std::exchange(other.held_, nullptr);
    return *this;
  }
  ~RegistrationHold() { reset(); }

  const Registration* operator->() const { return held_; }
  explicit operator bool() const { return held_ != nullptr; }
  void* descriptor(size_t rail) const { return held_ ? held_->descriptor(rail) : nullptr; }
  void reset() {
    if (held_) owner_->release(std::exchange(held_, nullptr));
  }

 private:
  RegistrationOwner* owner_ = nullptr;
  Registration* held_ = nullptr;
};

}  // namespace weft::transport::ofi
