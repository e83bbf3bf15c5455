// The frames that travel on a TCP connection. Not how they are sent (tcp_sender.h) or received
// (tcp_receiver.h).
//
// Both directions of a connection are alike and independent. A frame is a header of 64 bytes and then `bytes`
// of payload:
//   message  an envelope and its payload.
//   segment  a piece of a put. Puts are cut into segments so that messages can slip in between and several
//            connections can share one; they come in any order, over any connection of the two ranks.
//   end      the put is complete once `put_bytes` of its segments have come: then its envelope is delivered.
//   cancel   the sender gave up after handing out `put_bytes`: nothing is delivered.
//
// The end of a put is a frame of its own because a header, once written, cannot be taken back: a put that is
// given up in the middle of a segment is filled up with zeros, and must not be taken for complete by a
// receiver that still waits.
//
// Headers are in the byte order of the machine; a peer with the other order is told apart by the magic
// number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/transport.h"

namespace weft::transport::tcp {

enum class FrameKind : uint32_t { message = 1, segment = 2, end = 3, cancel = 4 };

inline constexpr uint32_t kMagic = 0x31746677;  // "wft1"
/// What a header may announce at most; anything longer is garbage, and no memory is spent on it.
inline constexpr size_t kMaxMessageBytes = size_t{4} << 20;
inline constexpr size_t kMaxSegmentBytes = size_t{64} << 20;

struct FrameHeader {
  uint32_t magic = kMagic;
  FrameKind kind = FrameKind::message;
  uint32_t bytes = 0;       // of payload that follow
  uint32_t put_id = 0;      // segment, end, cancel: which put; unique between two ranks while it is under way
  uint64_t put_bytes = 0;   // segment, end: the whole put; cancel: what there will be of it
  uint64_t put_offset = 0;  // segment: where in the put it belongs
  Envelope envelope;        // its `bytes` are those of the whole message or put
};
static_assert(sizeof(FrameHeader) == 64);

/// protocol_error that names the field if no Weft sender can have written this header.
Status check(const FrameHeader& header);

}  // namespace weft::transport::tcp
