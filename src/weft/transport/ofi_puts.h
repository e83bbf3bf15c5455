// Puts: puts on their way to peers, as stripes that the rails write, or as messages.
//
// Thread safety: none; as the transport's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>

#include "transport/ofi_messages.h"
#include "transport/ofi_peers.h"
#include "transport/ofi_protocol.h"
#include "transport/ofi_rails.h"

namespace weft::transport::ofi {

/// A put from its acceptance until the last of its bytes has left.
struct OutgoingPut {
  enum class Way : uint8_t { writes, messages };

  int peer = -1;
  Way way = Way::writes;
  bool of_gpu = false;  // the source is GPU memory
  Envelope envelope;
  uint64_t sequence = 0;
  const std::byte* source = nullptr;
  size_t bytes = 0;
  size_t posted_bytes = 0;
  size_t piece_bytes = 0;  // of a stripe or a segment; the last may be shorter
  size_t first_rail = 0;   // of the first stripe, before wrapping; each next one takes the next
  uint32_t posted = 0;     // stripes or segments
  uint32_t in_flight = 0;  // stripes whose completion is outstanding
  uint64_t address = 0;    // of the first byte, as the target's provider counts
  std::array<uint64_t, kMaxRails> keys{};  // the target's, by rail
  RegistrationHold registration;
  Completion* done = nullptr;  // null once forgotten
  bool withdrawn = false;      // forgotten before all was posted: what remains is to tell the peer
  std::list<OutgoingPut>::iterator self;

  bool all_posted() const { return posted_bytes == bytes; }
};

class Puts {
 public:
  /// `message_limit` is the payload that messages to all peers take; it changes as peers are introduced.
  Puts(Rails& rails, Peers& peers, Messages& messages, Immediate immediate, int rank,
       const size_t& message_limit)
      : rails_(rails),
        peers_(peers),
        messages_(messages),
        immediate_(immediate),
        message_limit_(message_limit),
        next_rail_(static_cast<size_t>(rank)) {}

  /// See MemoryAccess::put. `of_gpu`: the source is GPU memory.
  Result<Progress> start(int peer, const Envelope& envelope, const void* source, bool of_gpu, size_t bytes,
                         const RemoteBuffer& target, uint64_t offset, Completion* done);
  /// Hands over as much as there is room for.
  void advance_all();
  /// A stripe has left, or will never.
  void stripe_over(OutgoingPut& put);
  /// See MemoryAccess::forget.
  void forget(const Completion* first, const Completion* last);

  /// Whether bytes are still to be handed to libfabric.
  bool any_unposted() const { return !unposted_.empty(); }
  size_t under_way() const { return unposted_.size() + posted_.size(); }
  /// Whether libfabric has stripes of a forgotten put, and may read its source.
  bool reads_forgotten() const;
  /// The same, of puts to one peer.
  bool reads_forgotten(int peer) const;
  /// Whether the put that will set `done` is under way. A put to a lost peer is not.
  bool carries(const Completion& done) const;

 private:
  Result<Progress> announce(OutgoingPut& put, const RemoteBuffer& target, uint64_t offset);
  Result<Progress> post_stripe(OutgoingPut& put);
  Result<Progress> post_segment(OutgoingPut& put);
  Result<Progress> post_withdrawal(OutgoingPut& put);
  void advance(OutgoingPut& put);
  void finish(OutgoingPut& put);
  template <typename Test>
  bool any(Test test) const;

  Rails& rails_;
  Peers& peers_;
  Messages& messages_;
  const Immediate immediate_;
  const size_t& message_limit_;
  std::list<OutgoingPut> unposted_, posted_, spare_;
  // It begins elsewhere for each rank, as that of messages does. Apart from that, since every put is
  // announced by a message: its stripe would always take the rail after that one's.
  size_t next_rail_;
};

}  // namespace weft::transport::ofi
