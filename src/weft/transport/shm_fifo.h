// The message FIFO of one ordered pair of ranks. A ring of cache lines carries flag and data together. A ring
// of bytes beside it carries payloads that do not fit a line. Both ranks map the memory. This file knows no
// system calls, no sleeping and no ranks.
//
// How a message travels. The sender fills a slot and stores the slot's stamp last, with release order. The
// receiver watches the stamp of the next slot. When the stamp shows the current lap, everything else in the
// line is there, mostly by the same transfer. The stamp has a place of its own (Envelope::reserved), so
// payload is never taken for a stamp.
//
// How room comes back. The receiver publishes how far it has read every quarter ring, in a line that the
// sender reads only when the ring seems full. A payload takes at most a quarter of the byte ring. So a
// receiver that has read everything has published enough room for the next message, even for one that skips
// the ring's end.
//
// Where the time goes. A message costs two transfers: the line must leave the receiver's cache, and come
// back. Prefetches hide them. All guess that the next payload is as long as the last:
//
//   sender    It asks for the slot and the ring's lines that it will write soon. So the first transfer runs
//             beside its work between two messages.
//   receiver  It asks for the next lines while it waits, except for long payloads, which that only slows
//             down. In a stream it asks at once, since the next message is likely to be there.
//
// Thread safety: one thread at a time sends, one at a time receives; the two need no lock. They access shared
// words through std::atomic_ref.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/memory_watch.h"
#include "base/short_copy.h"
#include "transport/shm_room.h"
#include "transport/transport.h"

namespace weft::transport::shm {

inline constexpr size_t kInlineBytes = kShortCopy;  // of payload beside an envelope
/// A sender asks for the line of the slot this far behind the next one. The receiver may be watching the next
/// one's.
inline constexpr uint64_t kSlotsAhead = 2;
/// The longest payload whose lines a receiver asks for before it arrives: while the receiver waits, and in a
/// stream.
inline constexpr uint64_t kAskedWaiting = 256, kAskedInStream = 1024;

/// Where the bytes of a message are: the low two bits of its stamp.
enum class Payload : uint16_t {
  in_slot,
  in_ring,
  at_target,      // a put: they are where they belong
  for_transport,  // in the ring; for the receiver's transport itself
};

/// One cache line. `envelope.reserved` is the stamp: lap << 2 | Payload. For a payload in the ring, `payload`
/// holds a uint64_t: the position in the byte ring where it ends.
struct alignas(kLineBytes) Slot {
  Envelope envelope;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Slot) == kLineBytes && kSlots * 4 <= 1 << 16);

/// Written by the receiver: totals since the beginning.
struct alignas(kLineBytes) Consumed {
  uint64_t slots = 0;
  uint64_t ring_bytes = 0;
};

/// The shared memory of one FIFO, all zero at first. `ring_bytes` is a power of two.
struct FifoMemory {
  Slot* slots = nullptr;
  std::byte* ring = nullptr;
  Consumed* consumed = nullptr;
  uint64_t ring_bytes = 0;

  size_t largest_payload() const { return ring_bytes / 4; }
};

namespace detail {

/// The stamp that slot number `position` will bear. Laps count from 1, so that a slot of zeros is no message.
inline uint16_t stamp(uint64_t position, Payload where) {
  return static_cast<uint16_t>((position / kSlots + 1) << 2 | static_cast<uint16_t>(where));
}

/// Asks for a line in order to write it. GCC's builtin asks for a read only, unless the build is for newer
/// CPUs.
inline void fetch_to_write(const std::byte* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*line));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace detail

/// The sending end. Every call returns false, and has sent nothing, if there is no room or the payload's
/// memory is gone (MemoryWatch).
class FifoSender {
 public:
  FifoSender() = default;
  explicit FifoSender(const FifoMemory& memory) : memory_(memory) {}

  bool open() const { return memory_.slots != nullptr; }

  /// A message with `envelope.bytes` of payload, at most memory.largest_payload().
  bool send(const Envelope& envelope, const void* payload) {
    if (envelope.bytes <= kInlineBytes) return send_in_slot(envelope, payload);
    if (!slot_free()) return false;
    Slot& slot = next_slot();
    if (!write_to_ring(slot, payload, envelope.bytes)) return false;
    publish(slot, envelope, Payload::in_ring);
    fetch_ring(detail::round_to_lines(envelope.bytes));
    return true;
  }

  /// The same for at most kInlineBytes.
  bool send_in_slot(const Envelope& envelope, const void* payload) {
    if (!slot_free()) return false;
    Slot& slot = next_slot();
    copy_short(slot.payload, payload, envelope.bytes);
    if (MemoryWatch::lost(payload, envelope.bytes)) [[unlikely]]
      return false;
    publish(slot, envelope, Payload::in_slot);
    return true;
  }

  /// A message whose payload is already where it belongs.
  bool notify(const Envelope& envelope) {
    if (!slot_free()) return false;
    publish(next_slot(), envelope, Payload::at_target);
    return true;
  }

  /// A message for the transport at the other end. The two transports give its envelope a meaning.
  bool tell(const Envelope& envelope, const void* payload) {
    if (!slot_free() || !write_to_ring(next_slot(), payload, envelope.bytes)) return false;
    publish(next_slot(), envelope, Payload::for_transport);
    return true;
  }

  bool slot_free() { return next_ != slot_limit_ || look_for_slots(); }

  /// Whether a call that returned false would find room by now. Returns true once, then forgets the call.
  bool room_again() {
    if (!refused_) return false;
    if (next_ == slot_limit_ && !look_for_slots()) return false;
    if (refused_ring_end_ > ring_limit_ && !look_for_ring(refused_ring_end_)) return false;
    refused_ = false;
    return true;
  }

 private:
  Slot& next_slot() { return memory_.slots[next_ % kSlots]; }

  bool look_for_slots() {
    slot_limit_ = std::atomic_ref(memory_.consumed->slots).load(std::memory_order_acquire) + kSlots;
    return next_ != slot_limit_ || refuse(ring_next_);
  }

  bool look_for_ring(uint64_t end) {
    ring_limit_ =
        std::atomic_ref(memory_.consumed->ring_bytes).load(std::memory_order_acquire) + memory_.ring_bytes;
    return end <= ring_limit_ || refuse(end);
  }

  bool refuse(uint64_t ring_end) {
    refused_ring_end_ = refused_ ? std::min(refused_ring_end_, ring_end) : ring_end;
    refused_ = true;
    return false;
  }

  bool write_to_ring(Slot& slot, const void* payload, size_t bytes) {
    const uint64_t size = detail::round_to_lines(bytes);
    uint64_t start = ring_next_;
    uint64_t offset = start & (memory_.ring_bytes - 1);
    if (offset + size > memory_.ring_bytes) {  // a payload is contiguous: skip the rest of the lap
      start += memory_.ring_bytes - offset;
      offset = 0;
    }
    const uint64_t end = start + size;
    if (end > ring_limit_ && !look_for_ring(end)) return false;
    std::memcpy(memory_.ring + offset, payload, bytes);
    if (MemoryWatch::lost(payload, bytes)) [[unlikely]]
      return false;
    std::memcpy(slot.payload, &end, sizeof(end));
    ring_next_ = end;
    return true;
  }

  /// Asks for the lines where a payload of `size` bytes would go next, if they are known to be free.
  void fetch_ring(uint64_t size) const {
    if (ring_next_ + size > ring_limit_) return;
    for (uint64_t at = ring_next_; at != ring_next_ + size; at += kLineBytes) {
      detail::fetch_to_write(memory_.ring + (at & (memory_.ring_bytes - 1)));
    }
  }

  // Field by field: an envelope that is made where this is inlined is written to the slot only.
  void publish(Slot& slot, const Envelope& envelope, Payload where) {
    slot.envelope.comm = envelope.comm;
    slot.envelope.op = envelope.op;
    slot.envelope.signature = envelope.signature;
    slot.envelope.tag_low = envelope.tag_low;
    slot.envelope.kind = envelope.kind;
    slot.envelope.space = envelope.space;
    slot.envelope.offset = envelope.offset;
    slot.envelope.bytes = envelope.bytes;
    slot.envelope.tag_high = envelope.tag_high;
    std::atomic_ref(slot.envelope.reserved).store(detail::stamp(next_, where), std::memory_order_release);
    ++next_;
    detail::fetch_to_write(
        reinterpret_cast<const std::byte*>(&memory_.slots[(next_ + kSlotsAhead) % kSlots]));
  }

  FifoMemory memory_;
  uint64_t next_ = 0;             // position of the next message
  uint64_t slot_limit_ = kSlots;  // the first position known not to be free
  uint64_t ring_next_ = 0;
  uint64_t ring_limit_ = memory_.ring_bytes;
  uint64_t refused_ring_end_ = 0;
  bool refused_ = false;
};

/// The receiving end.
class FifoReceiver {
 public:
  /// The most messages that one call of receive() delivers, so that no sender starves the others.
  static constexpr int kBurst = 16;
  /// This many consecutive calls must have found a message before a call takes more than one. A look at the
  /// slot behind a message costs a whole transfer when the sender is about to write there. It delays the
  /// receiver's answer: in a ping-pong by half of a message's time. In a stream it costs next to nothing.
  static constexpr int kStream = 2;
  /// The same before the receiver asks for the lines of the next message. Ranks that exchange messages find
  /// some of them at the first look, too.
  static constexpr int kLongStream = 8;

  FifoReceiver() = default;
  explicit FifoReceiver(const FifoMemory& memory) : memory_(memory) {}

  bool ready() const {
    const uint16_t stamp = std::atomic_ref(next_slot().envelope.reserved).load(std::memory_order_acquire);
    return (stamp & ~3) == detail::stamp(next_, Payload::in_slot);
  }

  struct Received {
    int messages = 0;
    bool made_room = false;  // the sender may have been waiting for that
  };

  /// Calls deliver(envelope, Payload, pointer to the payload or null) for each message that has arrived.
  /// Pointer and envelope are valid until deliver() returns. The call stops before a first message that
  /// `taken(envelope)` denies, and before a later one that `expected(envelope)` denies.
  template <typename Deliver, typename Taken, typename Expected>
  Received receive(Deliver&& deliver, Taken&& taken, Expected&& expected) {
    Received received;
    if (!ready()) {
      streak_ = 0;
      ask_for_ring(kAskedWaiting);
      return received;
    }
    if (!is_for_transport(next_slot()) && !taken(std::as_const(next_slot().envelope))) return received;
    const int limit = streak_ < kStream ? 1 : kBurst;
    ++streak_;
    do {
      receive_one(deliver);
      received.made_room |= publish_if_due();
    } while (++received.messages < limit && ready() &&
             (is_for_transport(next_slot()) || expected(std::as_const(next_slot().envelope))));
    return received;
  }

  template <typename Deliver>
  Received receive(Deliver&& deliver) {
    const auto any = [](const Envelope&) { return true; };
    return receive(deliver, any, any);
  }

  /// Delivers one message at most, for callers that wait for a single one.
  template <typename Deliver>
  Received receive_next(Deliver&& deliver) {
    if (!ready()) {
      streak_ = 0;
      ask_for_ring(kAskedWaiting);
      return {};
    }
    receive_one(deliver);
    if (++streak_ > kLongStream) {
      __builtin_prefetch(&next_slot());
      ask_for_ring(kAskedInStream);
    }
    return {.messages = 1, .made_room = publish_if_due()};
  }

 private:
  static bool is_for_transport(const Slot& slot) {
    return static_cast<Payload>(slot.envelope.reserved & 3) == Payload::for_transport;
  }

  void ask_for_ring(uint64_t longest) const {
    if (watched_end_ - ring_next_ > longest) return;
    for (uint64_t at = ring_next_; at != watched_end_; at += kLineBytes) {
      __builtin_prefetch(memory_.ring + (at & (memory_.ring_bytes - 1)));
    }
  }

  bool publish_if_due() {
    if (next_ - published_.slots < kSlots / 4 &&
        ring_next_ - published_.ring_bytes < memory_.ring_bytes / 4) {
      return false;
    }
    published_ = {.slots = next_, .ring_bytes = ring_next_};
    std::atomic_ref(memory_.consumed->slots).store(next_, std::memory_order_release);
    std::atomic_ref(memory_.consumed->ring_bytes).store(ring_next_, std::memory_order_release);
    return true;
  }

  Slot& next_slot() const { return memory_.slots[next_ % kSlots]; }

  template <typename Deliver>
  void receive_one(Deliver&& deliver) {
    const Slot& slot = next_slot();
    const auto where = static_cast<Payload>(slot.envelope.reserved & 3);
    const std::byte* payload = slot.payload;
    if (where == Payload::at_target) {
      payload = nullptr;
    } else if (where != Payload::in_slot) {
      std::memcpy(&ring_next_, slot.payload, sizeof(ring_next_));
      const uint64_t size = detail::round_to_lines(slot.envelope.bytes);
      payload = memory_.ring + ((ring_next_ - size) & (memory_.ring_bytes - 1));
      watched_end_ = ring_next_ + size;
    }
    deliver(slot.envelope, where, payload);
    ++next_;
  }

  FifoMemory memory_;
  uint64_t next_ = 0;
  uint64_t ring_next_ = 0;
  Consumed published_;
  uint64_t watched_end_ = 0;  // end of the lines behind ring_next_ where the next payload is likely to be
  int64_t streak_ = 0;        // consecutive calls that found something
};

}  // namespace weft::transport::shm
