// OperationEnd: how and when an operation ends, and who still holds it: its outcome and its references.
//
// Thread safety: under the context's lock, except `finished`, which a waiter may read without it, and the
// reference count of an operation on a stream.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"

namespace weft::engine {

struct OperationEnd {
  Status status;
  std::atomic<bool> finished{false};
  std::atomic<int> references{0};
  double timeout_s = 0;     // from when its rank first had to wait for it
  int64_t deadline_ns = 0;  // 0 until the first look at the clock

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
    deadline_ns = 0;
  }
};

}  // namespace weft::engine
