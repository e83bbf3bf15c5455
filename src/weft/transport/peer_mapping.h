// PeerMapping: the part of a transport between ranks of one node that reads memory which a peer has exposed,
// through a pointer, by a single copy, or with the owner's help.
//
// Thread safety: none; as MessageTransport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "transport/memory_access.h"

namespace weft::transport {

/// A pointer through which a peer's memory can be read and written from here.
struct MappedBuffer {
  std::byte* address = nullptr;         // null if the memory can only be read()
  std::shared_ptr<const void> mapping;  // keeps `address` valid; null where the owner's exposure is enough
};

/// A long read of a peer's memory, front to back, piece by piece. The peer helps while it has time: it copies
/// pieces to memory that both ranks see. The reader can fetch a missing piece itself, so it depends on
/// nobody. Destroying the Reading ends it.
class Reading {
 public:
  virtual ~Reading() = default;
  /// Length of the next piece, whether it is there or not; 0 at the end. Readings of the same length have the
  /// same pieces.
  virtual uint64_t piece() const = 0;
  /// Where the next piece is, or null if the peer has not brought it. Valid until take().
  virtual const std::byte* ready() const = 0;
  /// How long the peer took to bring the piece that ready() returns.
  virtual int64_t bringing_ns() const = 0;
  /// Reads the next piece without help.
  virtual Status fetch(void* into) = 0;
  /// The reader is done with the next piece.
  virtual void take() = 0;
  /// Reports what a brought piece has cost both ranks on average, and the least that a piece cost which the
  /// reader fetched alone. If help repeatedly does not pay, the peer helps no more with this reading, nor
  /// with the next readings of its memory. Returns whether the peer still helps.
  virtual bool judge(int64_t brought_ns, int64_t alone_ns) = 0;
};

class PeerMapping {
 public:
  virtual ~PeerMapping() = default;
  /// Makes `target` reachable by a pointer where that is possible, as long as the answer's `mapping` lives.
  virtual MappedBuffer map(int peer, const RemoteBuffer& target) = 0;
  /// Whether `peer` is a thread of this process. Then map() gives the peer's own memory, which disappears
  /// when its owner frees it; elsewhere mapped memory stays. The transport does not guard such accesses.
  virtual bool same_process(int peer) const = 0;
  /// Whether read() works for plain memory of every peer of the node.
  virtual bool reads_peers() const = 0;
  /// Reads a peer's exposed memory. Errors: unsupported where the kernel forbids it, remote_error if the
  /// memory is gone.
  virtual Status read(int peer, const RemoteBuffer& target, uint64_t offset, void* into, size_t bytes) = 0;
  /// Begins a read, with its owner's help, of memory that map() cannot reach. Null where nobody helps; then
  /// read() does it all. The owner's exposure and this transport outlive the Reading.
  virtual std::unique_ptr<Reading> begin_reading(int peer, const RemoteBuffer& target, uint64_t offset,
                                                 uint64_t bytes) = 0;

  /// Tells peers that own exposed memory may change from now on, although they may be reading it. Only then
  /// may its owner write there. unexpose() is still due.
  virtual void revoke(const RemoteBuffer& buffer) = 0;
  /// Whether `peer` has revoked `target`, or may have. False: what was read of it before this call, by a
  /// pointer or otherwise, is what its owner has exposed.
  virtual bool revoked(int peer, const RemoteBuffer& target) = 0;
};

}  // namespace weft::transport
