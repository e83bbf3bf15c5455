// MessageBurst: messages of a rank to a peer that follow each other at once, as those of back-to-back
// Broadcasts from one root. Over TCP they share writes (tcp_coalescer.h). The model and the measurements for
// it use the same rule, so it stands here.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft::transport::tcp {

/// How many messages go to a peer without a poll in between before they are a burst. A caller that stops then
/// has delayed none of them.
inline constexpr uint32_t kBeforeBurst = 16;
/// How long messages of a burst wait for others: the time of a few writes, so that writing takes a small
/// part.
inline constexpr int64_t kBurstWaitNs = 20'000;
/// The longest message that waits.
inline constexpr size_t kCoalescedBytes = 4 << 10;
/// Messages to a peer that come to this together wait no longer.
inline constexpr size_t kCoalescedWriteBytes = 16 << 10;

class MessageBurst {
 public:
  /// A burst that has gone on for some time.
  static MessageBurst long_since() {
    MessageBurst burst;
    burst.messages_ = kBeforeBurst + 2;
    return burst;
  }
  /// One more message, by a rank that has polled so often. Returns whether it belongs to a burst. A burst
  /// goes on after a poll if several messages came since the poll before, as where a rank passes on what it
  /// polls.
  bool add(uint64_t polls) {
    if (std::exchange(polls_, polls) != polls) messages_ = messages_ > kBeforeBurst + 1 ? kBeforeBurst : 0;
    return ++messages_ > kBeforeBurst;
  }

 private:
  uint64_t polls_ = 0;
  uint32_t messages_ = 0;
};

}  // namespace weft::transport::tcp
