// Coalescer: which frames over TCP wait to share a write with others, because a write costs more than a short
// frame. A sender asks it for each frame (tcp_sender.h), and tells it of each write. There are two policies:
//
//   in_bursts     Messages of a burst wait (message_burst.h), to all peers together, for 20 us after the
//                 last of them was written. A poll writes whatever waits. If a caller stops polling, another
//                 thread polls at due_ns().
//   after_writes  Frames on a connection wait for `window_ns` after a write there, across polls. If a wait
//                 has brought no company, no waiting follows the next writes. Puts may wait as well.
//
// Thread safety: none, except due_ns().
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "transport/message_burst.h"

namespace weft::transport::tcp {

struct Coalescing {
  enum class When : uint8_t { never, in_bursts, after_writes };
  When when = When::never;
  int64_t window_ns = 0;  // after_writes
  /// after_writes: puts shorter than this wait, until together they are as long; 0: no put waits.
  uint64_t put_bytes = 0;
};

class Coalescer {
 public:
  /// The state of the frames that wait on a connection.
  struct Wait {
    int frames = 0;
    int64_t until_ns = 0;  // after_writes: frames that come before may wait; 0: none
    int spared = 0;        // writes that no waiting follows
  };

  explicit Coalescer(const Coalescing& options)
      : options_(options), bursts_wait_(options.when == Coalescing::When::in_bursts) {}

  // ---- after_writes

  uint64_t put_bytes() const { return options_.put_bytes; }
  /// Whether a frame may wait on a connection, by the time of its last write.
  static bool is_open(const Wait& wait) { return wait.until_ns != 0 && now_ns() < wait.until_ns; }
  /// A write has taken what waited on a connection.
  void wrote(Wait& wait) const {
    const int frames = std::exchange(wait.frames, 0);
    if (options_.when != Coalescing::When::after_writes) return;
    if (frames == 1) wait.spared = kSparedWrites;
    const bool spare = wait.spared > 0 && wait.spared-- > 0;
    wait.until_ns = spare ? 0 : now_ns() + options_.window_ns;
  }

  // ---- in_bursts

  /// Whether messages of bursts wait from now on, where the policy says so.
  void share_writes(bool shares) { bursts_wait_ = shares && options_.when == Coalescing::When::in_bursts; }
  /// A message to a peer comes, and the rank has polled so often. Returns whether the message may wait.
  /// Nothing waits while a thread sleeps: no thread would wake that one.
  bool begin_message(MessageBurst& burst, uint64_t polls, bool asleep) {
    burst_now_ns_ = bursts_wait_ && !asleep && burst.add(polls) ? now_ns() : 0;
    return burst_now_ns_ > 0 && burst_now_ns_ < window_end_ns_;
  }
  /// Whether that message belongs to a burst.
  bool in_burst() const { return burst_now_ns_ > 0; }
  /// That message waits.
  void message_waits() {
    if (due_ns() == 0) due_ns_.store(burst_now_ns_ + kDueNs, std::memory_order_relaxed);
  }
  /// That message has left, and all that waited with it.
  void message_left() { window_end_ns_ = now_ns() + kBurstWaitNs; }
  /// Everything that waited is being written.
  void writes_all() { due_ns_.store(0, std::memory_order_relaxed); }
  /// When somebody has to poll for the sake of messages that wait; 0: nothing waits. From any thread.
  int64_t due_ns() const { return due_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kSparedWrites = 32;
  // A message that waits for longer has been left behind: its sender no longer calls.
  static constexpr int64_t kDueNs = 2 * kBurstWaitNs;

  const Coalescing options_;
  bool bursts_wait_;
  int64_t burst_now_ns_ = 0;   // when the message at hand came; 0: it belongs to no burst
  int64_t window_end_ns_ = 0;  // messages of bursts wait until then
  std::atomic<int64_t> due_ns_{0};
};

}  // namespace weft::transport::tcp
