// The wire format of the libfabric transport, and the bookkeeping that makes puts whole again on a fabric
// without order. Pure values: nothing here calls libfabric.
//
// Every message starts with a Header. A put into memory that the peer has registered consists of stripes and
// one `put` message. Each stripe is an RMA write with a 32-bit immediate (the sender, and which put). The
// `put` message holds the number of stripes and the envelope. The put has arrived when all of them have, in
// any order. A put that cannot be written remotely consists of `segment` messages, each of which says where
// in the put its bytes belong.
//
// The immediate holds the sender's rank in as few bits as the job needs, and the low bits of the put's
// sequence number in the rest: 20 bits for 4,096 ranks, 12 for a million. A sender has at most `window` puts
// under way that the receiver has not acknowledged, so that the low bits identify each of them. The receiver
// acknowledges every quarter of the window. So no size of job needs a protocol of its own, and a receiver's
// bookkeeping is bounded.
//
// The messages on their way to one peer are bounded too, where the receiver's address says so. All senders
// share a rank's receives, so a rank takes in every message that cannot stay in the network. The same
// acknowledgement says how much the rank has taken in, after each half of the bound. A sender that is to
// pause (Sink::takes_early()) gets it later. Acknowledgements may be lost, together with the connection to
// the rank that needs them.
//
// Over TCP a rank greets a peer, and sends nothing else until the peer has answered. If both begin to
// connect at once, the provider may close the connection that works and keep the one that does not. Data that
// was sent meanwhile is lost. All versions of `net` and `tcp` do so, if a connection to another process has
// ended before: they mistake the state of that process for the state of this one. Once an answer
// has arrived, both ends agree on the connection. Greetings and answers may be lost: a rank without an answer
// asks again. So a peer is busy until it has polled its network once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "transport/transport.h"

namespace weft::transport::ofi {

inline constexpr size_t kMaxRails = 4;

/// The keys of a RemoteBuffer over libfabric.
struct Keys {
  std::array<uint64_t, kMaxRails> rails{};  // the registration's key on each rail
  uint64_t base = 0;                        // what the provider's addresses are relative to
  uint64_t exposure = 0;  // the owner's number of it; 0: not registered, so that only messages reach it
};

enum class MessageKind : uint32_t {
  message,    // send(): envelope and payload
  put,        // `count` stripes of put `sequence` belong to `envelope`
  segment,    // bytes [position, position + payload) of put `sequence`
  withdrawn,  // put `sequence` ends after `count` stripes (or none of its segments) and is not to be
              // delivered
  received,   // all puts before `sequence` are whole, and messages that cost `position` have been taken in
  greeting,   // asks for a welcome over rail `count`
  welcome,    // answers it, over the same rail
};

/// When to greet a peer that has not answered: at once, and then again after pauses that double. The peer may
/// compute for an hour before it polls, and should not find an hour's greetings. A greeting is lost only
/// while both begin to connect; then the peer greets, too: hurry().
class Greetings {
 public:
  bool due(int64_t now_ns) const { return now_ns >= next_ns_; }
  void sent(int64_t now_ns) {
    next_ns_ = now_ns + pause_ns_;
    pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  }
  /// The peer is awake.
  void hurry() { *this = Greetings(); }

 private:
  static constexpr int64_t kFirstPauseNs = 5'000'000, kLongestPauseNs = 10'000'000'000;
  int64_t next_ns_ = 0, pause_ns_ = kFirstPauseNs;
};

/// The beginning of every message. Ranks of a job have the same byte order: plain memory is the format.
struct Header {
  uint32_t token = 0;  // the receiver's, from its address: strays of another job are dropped
  uint32_t sender = 0;
  MessageKind kind = MessageKind::message;
  uint32_t count = 0;
  uint64_t sequence = 0;
  uint64_t position = 0;
  Envelope envelope;
};
static_assert(sizeof(Header) == 64);

/// Whether a message is a greeting or answers one.
inline bool greets(const Header& header) {
  return header.kind == MessageKind::greeting || header.kind == MessageKind::welcome;
}

/// Whether the loss of a message leaves the peer alive: the peer may have left in good order.
inline bool may_be_lost(const Header& header) {
  return greets(header) || header.kind == MessageKind::received;
}

/// OfiOptions::message_credit for a job whose ranks may keep `early_bytes` each. All peers together have a
/// quarter of that, 64 MiB at most; each has at least 8 KiB, and at most 1 MiB.
inline uint64_t message_credit(int ranks, uint64_t early_bytes) {
  constexpr uint64_t kOfAll = 64 << 20, kLeast = 8 << 10, kMost = 1 << 20;
  return std::clamp(std::min(kOfAll, early_bytes / 4) / static_cast<uint64_t>(ranks), kLeast, kMost);
}
/// The part of the credit that a message costs.
inline uint64_t message_cost(size_t payload_bytes) { return sizeof(Header) + payload_bytes; }

/// How sender and sequence number share the immediate.
class Immediate {
 public:
  /// `sequence_bits` 0 stands for all bits that `ranks` leave.
  explicit Immediate(int ranks, int sequence_bits = 0)
      : bits_(32 - std::max(1, static_cast<int>(std::bit_width(static_cast<uint32_t>(ranks - 1))))) {
    if (sequence_bits > 0) bits_ = std::min(bits_, sequence_bits);
  }

  /// Puts that may be under way to one peer.
  uint64_t window() const { return std::min(mask() + 1, uint64_t{4096}); }
  uint32_t encode(uint32_t sender, uint64_t sequence) const {
    return static_cast<uint32_t>(uint64_t{sender} << bits_ | (sequence & mask()));
  }
  uint32_t sender(uint32_t immediate) const { return immediate >> bits_; }
  /// The sequence number at or after `first` that has these low bits.
  uint64_t sequence(uint32_t immediate, uint64_t first) const {
    return first + ((immediate - first) & mask());
  }

 private:
  uint64_t mask() const { return (uint64_t{1} << bits_) - 1; }
  int bits_;
};

/// A put of which at least something has arrived.
struct IncomingPut {
  Envelope envelope;
  uint64_t stripes_seen = 0;
  uint64_t stripes_expected = 0;  // valid once `announced`
  uint64_t segment_bytes = 0;     // that have come, of a put in segments
  bool in_segments = false;
  bool announced = false;
  bool withdrawn = false;
  bool finished = false;
  bool cut_off = false;  // the connection that brought it broke

  bool striped_whole() const { return announced && stripes_seen == stripes_expected; }
  /// Whether stripes of it may be coming in.
  bool under_way() const { return (announced || stripes_seen > 0) && !finished && !cut_off; }
};

/// The puts of one peer, by sequence number, from the oldest that is not finished on.
class IncomingPuts {
 public:
  /// The oldest number that is not finished: what `received` tells the sender.
  uint64_t first() const { return first_; }

  /// The put with this number, or null if it is finished already or lies beyond the window.
  IncomingPut* find(uint64_t sequence, uint64_t window) {
    if (sequence < first_ || sequence - first_ >= window) return nullptr;
    if (sequence - first_ >= puts_.size()) puts_.resize(sequence - first_ + 1);
    return &puts_[sequence - first_];
  }

  /// All from the oldest unfinished put on; younger ones among them may be finished.
  std::deque<IncomingPut>& known() { return puts_; }
  const std::deque<IncomingPut>& known() const { return puts_; }

  void finish(IncomingPut& put) {
    put.finished = true;
    for (; !puts_.empty() && puts_.front().finished; ++first_) puts_.pop_front();
  }

 private:
  uint64_t first_ = 0;
  std::deque<IncomingPut> puts_;
};

}  // namespace weft::transport::ofi
