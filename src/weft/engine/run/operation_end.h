// OperationEnd: how and when an operation ends, and who still holds it: its outcome, its references, and what
// is known of peers that hold it up.
//
// Thread safety: under the context's lock, except `finished`, which a waiter may read without it, and the
// reference count of an operation on a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace weft::engine {

struct OperationEnd {
  Status status;
  std::atomic<bool> finished{false};
  std::atomic<int> references{0};
  int64_t deadline_ns = 0;     // 0 until the first look at the clock
  int64_t next_check_ns = 0;   // when to ask peers what holds them up
  int64_t unreachable_ns = 0;  // since when a peer or its memory cannot be reached; 0: nothing such is known
  Status unreachable;          // … and why, as long as no better reason is heard
  bool verdict_pending = false;
  int32_t mismatched = -1;  // a rank whose message did not fit: the verdict is that the calls differ

  /// `shared`: other threads count, too.
  void retain(bool shared) {
    if (shared) references.fetch_add(1, std::memory_order_relaxed);
    else references.store(references.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// True if that was the last reference.
  bool drop(bool shared) {
    if (shared) return references.fetch_sub(1, std::memory_order_acq_rel) == 1;
    const int left = references.load(std::memory_order_relaxed) - 1;
    references.store(left, std::memory_order_relaxed);
    return left == 0;
  }
  /// As new, for the next call.
  void renew() {
    status = Status();
    finished.store(false, std::memory_order_relaxed);
    references.store(1, std::memory_order_relaxed);
    deadline_ns = next_check_ns = unreachable_ns = 0;
    verdict_pending = false;
    mismatched = -1;
  }
  void set_unreachable(Status why, int64_t now_ns) {
    unreachable = std::move(why);
    unreachable_ns = now_ns;
  }
};

}  // namespace weft::engine
