// MemoryAccess: the part of a transport that writes into memory which a peer has exposed. RemoteBuffer: how
// that peer describes the memory.
//
// Thread safety: none; as MessageTransport.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/status.h"
#include "transport/envelope.h"
#include "transport/message_transport.h"

namespace weft::transport {

/// A struct that can be a transport's keys: 48 bytes, none of them padding, which would travel uninitialised.
template <typename T>
concept KeysOfTransport =
    sizeof(T) == 48 && std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>;

/// 48 bytes of a RemoteBuffer that only the transports of its owner and of the owner's peers understand. Each
/// transport has a struct of its own for them. A struct of another size does not compile.
class TransportKeys {
 public:
  TransportKeys() = default;
  template <KeysOfTransport Keys>
  explicit TransportKeys(const Keys& keys) : bytes_(std::bit_cast<Bytes>(keys)) {}
  /// The caller is a transport of the kind that has exposed the buffer.
  template <KeysOfTransport Keys>
  Keys as() const {
    return std::bit_cast<Keys>(bytes_);
  }

 private:
  using Bytes = std::array<std::byte, 48>;
  Bytes bytes_{};
};

/// How a peer's memory is reached. The owner's transport writes it (expose), and the peer's transport
/// understands it. It consists of plain bytes, so that it can travel as a payload.
struct RemoteBuffer {
  uint64_t address = 0;  // in the owner's address space
  uint64_t bytes = 0;
  TransportKeys keys{};
};
static_assert(sizeof(RemoteBuffer) == 64 && std::is_trivially_copyable_v<RemoteBuffer>);

/// Set by a transport when a put's source may be reused. Owned by the caller; lives until then, or until the
/// put is forgotten.
struct Completion {
  bool done = false;
};

class MemoryAccess {
 public:
  virtual ~MemoryAccess() = default;

  /// Makes own memory reachable for peers until unexpose(). The same range may be exposed several times at
  /// once; registrations are cached.
  virtual Result<RemoteBuffer> expose(void* address, size_t bytes) = 0;
  virtual void unexpose(const RemoteBuffer& buffer) = 0;

  /// Up to this size a message costs no more than a put.
  virtual size_t brief_put_bytes() const = 0;
  /// Writes `bytes` at `offset` of `target`, which `peer` exposed, then delivers `envelope` to the peer's
  /// Sink. The transport sets `done` when the source may be reused, in this call or in a later poll().
  virtual Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                               const RemoteBuffer& target, uint64_t offset, Completion* done) = 0;
  /// Gives up on puts whose `done` lies in [first, last). They may still run or not, but the transport does
  /// not touch `done` again.
  virtual void forget(const Completion* first, const Completion* last) = 0;
  /// Whether the transport may still read the source of a forgotten put.
  virtual bool reads_forgotten() const = 0;
};

}  // namespace weft::transport
