// Device memory that other processes of the node reach: its owner describes it, and a peer that has the
// description maps it. Inside a process the address itself serves.
//
// Thread safety: none; a thread that uses it is inside a Scope of its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "device/cuda/device.h"

namespace weft::device::cuda {

/// The version of a description's layout; another library's may differ.
inline constexpr uint16_t kSharedMemoryFormat = 3;

/// A range of device memory, in terms that a peer can use; plain bytes, to travel as a payload.
struct SharedMemory {
  uint64_t process = 0;    // a random number of the owner's
  uint64_t address = 0;    // of the range, in the owner's address space
  uint64_t bytes = 0;      // of the range
  uint64_t buffer_id = 0;  // of the allocation
  uint64_t offset = 0;     // of the range in it
  uint64_t whole = 0;      // length of the allocation
  int32_t ordinal = 0;     // of the device in the owner's process
  uint16_t format = kSharedMemoryFormat;
  uint16_t cuda_version = 0;  // of the owner's driver, divided by 10: 1302 is 13.2
  IpcHandle handle{};
};

/// Describes own memory. `process` peers need the handle only if `for_others`.
class Exporter {
 public:
  /// Errors: unsupported if CUDA cannot share this memory, because it is not from cuMemAlloc.
  Result<SharedMemory> describe(const void* address, size_t bytes, bool for_others);
  /// The same of memory that is known to be in `place`.
  Result<SharedMemory> describe(const Place& place, const void* address, size_t bytes, bool for_others);

 private:
  static constexpr size_t kKept = 1024;
  std::unordered_map<uint64_t, IpcHandle> handles_;  // by buffer id
};

/// This process's number in SharedMemory::process.
uint64_t process_number();

/// Maps peers' memory, and keeps the most recently used mappings of each peer, since mapping is slow. CUDA
/// leaves open what becomes of memory that its owner frees while it is mapped elsewhere; such a mapping is
/// never used again here. If the owner has other memory at the same address by then, the old mapping is
/// closed first: a driver may refuse to map both.
class Importer {
 public:
  explicit Importer(Device& device) : device_(device) {}

  /// A mapping that lasts while this lives.
  class Mapping {
   public:
    Mapping(Device& device, DevicePointer base) : device_(device), base_(base) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    std::byte* at(uint64_t offset) const {
      return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(base_)) + offset;
    }

   private:
    Device& device_;
    DevicePointer base_;
  };
  struct Reached {
    std::byte* address = nullptr;
    std::shared_ptr<Mapping> mapping = nullptr;  // null inside a process
    // Null address: the owner's earlier memory there is still mapped here, and this is its user, or stands
    // for mappings that are being closed. The caller asks again when it has expired; until then the driver
    // refuses with `why`.
    std::weak_ptr<void> behind = {};
    Status why = {};
    bool closing = false;  // nobody has to do anything for that
  };
  /// Where the memory of a peer can be reached from here. Errors name the likely cause. No mapping is closed
  /// on the calling thread, since that may wait for the device.
  Result<Reached> reach(const SharedMemory& memory);
  /// The same for what a rank offers to a communicator, now: without an address it fails, after a second in
  /// which mappings are closed. Errors: those of reach(), unsupported (the rank offers nothing). The sentence
  /// names the rank.
  Result<Reached> reach_of_rank(int rank, const SharedMemory& offered);

 private:
  Result<Reached> map(const SharedMemory& memory);

  static constexpr std::ptrdiff_t kKept = 64;  // of a process
  struct Range {
    uint64_t process;
    uint64_t first, last;  // [first, last) of its owner's addresses
    bool overlaps(const Range& other) const {
      return process == other.process && first < other.last && other.first < last;
    }
  };
  struct Kept {
    Range range;
    uint64_t buffer_id;
    std::shared_ptr<Mapping> mapping;
  };
  struct Dropped {
    Range range;
    std::weak_ptr<Mapping> mapping;
  };
  static Range range_of(const SharedMemory& memory);
  template <typename Condition>
  void drop_if(Condition condition);

  Device& device_;
  std::vector<Kept> kept_;        // the most recently used first
  std::vector<Dropped> dropped_;  // not kept any more, but perhaps still used
};

}  // namespace weft::device::cuda
