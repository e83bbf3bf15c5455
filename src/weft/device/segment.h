// Segment: pages that other processes of the node can map, and that have no name anybody else could open: a
// sealed memfd. A peer who is told (pid, descriptor, size, inode) opens it through /proc. Not an allocator
// (window.h) and not a protocol (transport/shm_segment.h).
//
// Thread safety: a Segment is used by one thread at a time; the bytes behind it are the user's affair.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace weft::device {

/// What a peer needs to find a segment. The inode tells a segment from another file that has taken its
/// descriptor's number since.
struct SegmentName {
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int32_t fd = -1;  // in the owner's process
};

class Segment {
 public:
  /// Makes `bytes` (rounded up to pages) of zeros that use no memory until touched. Large segments ask for
  /// huge pages. Fails with out_of_memory.
  static Result<Segment> create(size_t bytes);
  /// Maps a segment that process `pid` made. Fails with remote_error if the process or its segment is gone
  /// (or is another one), system_error if the kernel forbids it.
  static Result<Segment> open(pid_t pid, const SegmentName& name);

  Segment() = default;
  Segment(Segment&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Only of a segment that create() made; one that was opened keeps its mapping alone.
  Result<SegmentName> name() const;

  /// Gives the memory of the whole pages in [offset, offset + bytes) back at once, even where peers still map
  /// it; their bytes read as zero afterwards.
  void discard(size_t offset, size_t bytes) const;

  /// Closes the descriptor and leaves the pages mapped for good: nothing else ever lies at their addresses.
  void leave_mapped() {
    fd_.reset();
    data_ = nullptr;
    bytes_ = 0;
  }

 private:
  static Result<Segment> map(UniqueFd fd, size_t bytes);
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Opens descriptor `fd` of process `pid` for reading and writing, as a description of our own. remote_error
/// if either is gone, system_error with the likely cause if the kernel forbids it.
Result<UniqueFd> open_peer_descriptor(pid_t pid, int fd);

}  // namespace weft::device
