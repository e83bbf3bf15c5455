// GpuRegistrations: GPU memory registered with libfabric (FI_HMEM, or a dma-buf where libfabric and the
// driver have them), on all rails at once. Registering GPU memory takes longer than a large transfer. So,
// unlike host memory's, registrations are kept for the next user. The driver numbers allocations and uses no
// number twice. The number tells memory that was freed and allocated anew from memory that stayed. A
// registration without a user is closed when its memory turns out to be gone, when there are too many, and by
// drop_idle().
//
// Thread safety: none; as the transport's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/cuda/device.h"
#include "transport/ofi_registration.h"

namespace weft::transport::ofi {

/// Registers memory of CUDA device `ordinal`. Errors: unsupported, with what libfabric and the driver say.
Result<Fid<fid_mr>> register_gpu_memory(const RegistrationDomain& domain, void* base, size_t bytes,
                                        uint64_t key, int ordinal);

/// A dma-buf, in which some GPU memory begins at `offset`.
struct GpuFile {
  int fd = -1;
  uint64_t offset = 0;
};
/// ok if this libfabric takes them: from 1.20 on, at build and run time. Whether its provider does shows when
/// one is registered.
Status takes_files_of_gpu_memory();

class GpuRegistrations final : public RegistrationOwner {
 public:
  struct Statistics {
    uint64_t hits = 0, misses = 0, failures = 0;
    uint64_t stale = 0;  // closed because their memory was gone
  };

  /// One domain a rail; `kept` registrations without a user are kept.
  explicit GpuRegistrations(std::vector<RegistrationDomain> domains, size_t kept = 64);

  /// A registration that covers [address, address + bytes), bytes > 0, of one allocation; release() it once.
  /// Errors: invalid_pointer where that is no GPU memory (any more), unsupported if it cannot be registered.
  Result<Registration*> acquire(const void* address, size_t bytes);
  /// A new registration of exactly this memory, by its dma-buf. Errors as acquire()'s.
  Result<Registration*> acquire_file(const void* address, size_t bytes, const GpuFile& file);
  void release(Registration* registration) override;
  /// Closes what has no user.
  void drop_idle();

  size_t live() const { return entries_.size(); }
  const Statistics& statistics() const { return statistics_; }

 private:
  struct Entry {
    std::unique_ptr<Registration> registration;
    uint64_t buffer_id = 0;
    uint64_t last_used = 0;
    bool gone = false;  // to be closed by its last user
  };

  Result<Registration*> add(uintptr_t first, uintptr_t last, const device::cuda::Place& place,
                            const GpuFile* file);
  Entry* covering(uintptr_t first, uintptr_t last, uint64_t buffer_id);
  void close_stale();
  void close_oldest();

  std::vector<RegistrationDomain> domains_;
  const size_t kept_;
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
  uint64_t next_key_;
  Statistics statistics_;
};

}  // namespace weft::transport::ofi
