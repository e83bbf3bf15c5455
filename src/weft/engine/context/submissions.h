// Submissions: operations of streams, and calls of launched CUDA graphs, on their way from other threads to a
// context. The context starts them at its next turn.
//
// Thread safety: all methods, but for take() and recycle(), which need the context's lock. submit() calls
// nothing of CUDA.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/context/context_lock.h"
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
    const MutexLock guard(mutex_);
    submitted_.operations.push_back(op);
    any_.store(true);
  }
  void submit(std::shared_ptr<CapturedCalls> calls) {
    const MutexLock guard(mutex_);
    submitted_.captured.push_back(std::move(calls));
    any_.store(true);
  }
  /// Whether something waits to be taken. It may be a moment late, but for a thread that has just announced
  /// that it will sleep (Sleepers), to which it is not.
  bool any(std::memory_order order = std::memory_order_relaxed) const { return any_.load(order); }
  /// Takes everything.
  Batch take() WEFT_REQUIRES(context_lock) {
    Batch taken{std::exchange(spare_, {}), {}};
    const MutexLock guard(mutex_);
    taken.operations.swap(submitted_.operations);
    taken.captured.swap(submitted_.captured);
    any_.store(false);
    return taken;
  }
  /// Memory that take() gave, for later submissions.
  void recycle(std::vector<Operation*> operations) WEFT_REQUIRES(context_lock) {
    operations.clear();
    spare_ = std::move(operations);
  }

 private:
  Mutex mutex_;
  Batch submitted_ WEFT_GUARDED_BY(mutex_);
  std::vector<Operation*> spare_ WEFT_GUARDED_BY(context_lock);
  std::atomic<bool> any_{false};
};

}  // namespace weft::engine
