// The frames that travel on a TCP connection. Not how they are sent (tcp_sender.h) or received
// (tcp_receiver.h).
//
// Both directions of a connection are alike and independent. A frame is a header and then `bytes` of payload:
//   message  An envelope, which is all its header, and its payload.
//   segment  A piece of a put. Puts are cut into segments so that messages can slip in between and several
//            connections can share one. Segments arrive in any order, over any connection of the two ranks.
//   end      The put is complete once `put_bytes` of its segments have arrived; then the receiver delivers
//            its envelope.
//   cancel   The sender gave up after handing out `put_bytes`; the receiver delivers nothing.
//
// The end of a put is a frame of its own, because a sender cannot take a written header back. A put that is
// given up in the middle of a segment is filled up with zeros. A receiver must not take it for complete.
//
// Headers are in the byte order of the machine; the mark exposes a peer with the other order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/transport.h"

namespace weft::transport::tcp {

enum class FrameKind : uint8_t { message = 1, segment = 2, end = 3, cancel = 4 };

/// The longest payloads that a header may announce. Anything longer is garbage, and the receiver spends no
/// memory on it.
inline constexpr size_t kMaxMessageBytes = size_t{4} << 20;
inline constexpr size_t kMaxSegmentBytes = size_t{64} << 20;

/// Envelope::reserved of a frame under way holds this mark, and the frame's kind.
inline constexpr uint16_t kMark = 0x77e0;
constexpr uint16_t mark_of(FrameKind kind) {
  return static_cast<uint16_t>(kMark | static_cast<uint8_t>(kind));
}

struct FrameHeader {
  Envelope envelope{.reserved = mark_of(FrameKind::message)};  // its `bytes` are those of all
  // The rest belongs to frames of puts only: a message's header ends here.
  uint32_t bytes = 0;       // of payload that follow
  uint32_t put_id = 0;      // which put; unique between two ranks while it is under way
  uint64_t put_bytes = 0;   // segment, end: the whole put; cancel: what there will be of it
  uint64_t put_offset = 0;  // segment: where in the put it belongs

  bool is_marked() const { return (envelope.reserved & ~0xf) == kMark; }
  FrameKind kind() const { return FrameKind{static_cast<uint8_t>(envelope.reserved & 0xf)}; }
  void set_kind(FrameKind kind) { envelope.reserved = mark_of(kind); }
  /// Length of the header on the network. Garbage counts as a message's, which is enough to recognise it.
  size_t length() const {
    return is_marked() && kind() != FrameKind::message ? sizeof(FrameHeader) : sizeof(Envelope);
  }
};
static_assert(sizeof(FrameHeader) == 56);
inline constexpr size_t kMessageHeader = sizeof(Envelope);

/// A message's header as it is written: the envelope alone.
inline Envelope message_header(Envelope envelope) {
  envelope.reserved = mark_of(FrameKind::message);
  return envelope;
}

/// protocol_error that names the field if no Weft sender can have written this header.
Status check(const FrameHeader& header);

}  // namespace weft::transport::tcp
