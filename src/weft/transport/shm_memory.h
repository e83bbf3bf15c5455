// How a rank reaches memory that a peer of its node has exposed: windows by mapping them, plain memory by
// single-copy system calls (cross memory attach, CMA). Messages are shm_fifo.h's.
//
// Thread safety: a PeerMemory is used by one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/segment.h"
#include "transport/shm_segment.h"
#include "transport/transport.h"

namespace weft::transport::shm {

/// The keys of a RemoteBuffer in shared memory.
struct Keys {
  uint64_t serial = 0;  // of the window; 0: plain memory, and fd to inode are 0
  int32_t fd = 0;
  uint32_t revocations = 0;  // how many the owner had counted when it exposed the memory
  uint64_t offset = 0;       // of the buffer in its segment
  uint64_t segment_bytes = 0;
  uint64_t inode = 0;
  uint64_t exposure = 0;  // the owner's number of it (Helper::expose)
};

/// The keys of own memory, without an exposure.
Keys keys_of_memory(const void* address, size_t bytes);
inline RemoteBuffer describe_memory(void* address, size_t bytes, uint64_t exposure = 0,
                                    uint32_t revocations = 0) {
  Keys keys = keys_of_memory(address, bytes);
  keys.exposure = exposure;
  keys.revocations = revocations;
  return {reinterpret_cast<uintptr_t>(address), bytes, TransportKeys(keys)};
}
inline bool is_window(const RemoteBuffer& buffer) { return buffer.keys.as<Keys>().serial != 0; }

class PeerMemory {
 public:
  /// Segments of one peer that stay mapped when nobody uses them.
  static constexpr size_t kMappedSegments = 256;

  PeerMemory() = default;
  /// `cma`: whether to try single-copy calls; asks the kernel if it allows them.
  PeerMemory(int rank, const ShmAddress& address, bool cma);

  /// Whether read() and write() work. Always true for a peer of this process.
  bool single_copy() const { return single_copy_; }

  /// A pointer to the peer's buffer, or null for plain memory of another process and for a window that is
  /// gone. find()'s pointer is valid until the next call; map()'s as long as its mapping.
  void* find(const RemoteBuffer& buffer);
  MappedBuffer map(const RemoteBuffer& buffer);
  /// Why find() has no pointer to a window: remote_error if its owner or the window is gone.
  Status why_unmapped(const RemoteBuffer& window) const;

  /// Copy between own memory and `offset` of the peer's buffer, which need not be mapped. remote_error,
  /// naming the rank, if it is gone.
  Status read(const RemoteBuffer& from, uint64_t offset, void* into, size_t bytes);
  Status write(const RemoteBuffer& into, uint64_t offset, const void* from, size_t bytes);

 private:
  struct Mapped {
    uint64_t serial;
    std::shared_ptr<const device::Segment> segment;  // also held by who was given it
  };
  enum class Direction { read, write };

  Result<device::Segment> open(const Keys& keys) const;
  Status transfer(Direction direction, const RemoteBuffer& buffer, uint64_t offset, void* own, size_t bytes);
  Status explain(int error, Direction direction, uint64_t address, size_t bytes) const;

  int rank_ = -1;
  pid_t pid_ = 0;
  bool same_process_ = false;
  bool single_copy_ = false;
  std::vector<Mapped> mapped_;  // the most recently used first
};

}  // namespace weft::transport::shm
