// Submissions: what other threads hand over to a context, to be started at its next turn: operations of
// streams, and calls that a CUDA graph has come to.
//
// Thread safety: all methods, but for recycle(), which needs the context's lock. submit() calls nothing of
// CUDA.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/run/operation.h"

namespace weft::engine {

class CapturedCalls;

class Submissions {
 public:
  struct Batch {
    std::vector<Operation*> operations;  // each with a reference
    std::vector<std::shared_ptr<CapturedCalls>> captured;
  };

  /// Takes a reference of its own.
  void submit(Operation* op) {
    op->retain();
    const std::lock_guard guard(mutex_);
    submitted_.operations.push_back(op);
    any_.store(true);
  }
  void submit(std::shared_ptr<CapturedCalls> calls) {
    const std::lock_guard guard(mutex_);
    submitted_.captured.push_back(std::move(calls));
    any_.store(true);
  }
  /// Whether something waits to be taken. It may be a moment late, but for a thread that has just announced
  /// that it will sleep (Sleepers), to which it is not.
  bool any(std::memory_order order = std::memory_order_relaxed) const { return any_.load(order); }
  /// Takes everything.
  Batch take() {
    Batch taken{std::exchange(spare_, {}), {}};
    const std::lock_guard guard(mutex_);
    taken.operations.swap(submitted_.operations);
    taken.captured.swap(submitted_.captured);
    any_.store(false);
    return taken;
  }
  /// Memory that take() gave, for later submissions.
  void recycle(std::vector<Operation*> operations) {
    operations.clear();
    spare_ = std::move(operations);
  }

 private:
  std::mutex mutex_;
  Batch submitted_;
  std::vector<Operation*> spare_;  // under the context's lock
  std::atomic<bool> any_{false};
};

}  // namespace weft::engine
