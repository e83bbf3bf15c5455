// Waiting: how threads wait in a context. A thread that waits for an operation works: it drives the context
// until the operation has ended, and sleeps when it finds nothing to do. A thread that leaves work behind
// hands it to the progress thread.
//
// Thread safety: the annotations say which methods need the context's lock; the progress thread alone calls
// timer_is_due().
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "engine/context/context_lock.h"
#include "engine/context/due_timer.h"
#include "engine/run/operation.h"

namespace weft::device::cuda {
class Device;
}

namespace weft::engine {

class Context;
class ProgressThread;

class Waiting {
 public:
  explicit Waiting(Context& context) : context_(context) {}

  /// Drives the context until `op` has ended, or the deadline has passed. The lock may be given up and taken
  /// again on the way.
  void wait(Lock& lock, Operation& op, Deadline deadline = Deadline::never()) WEFT_REQUIRES(context_lock);
  /// Waits for an operation and returns how it has ended. The caller releases it.
  Status result_of(Lock& lock, Operation& op) WEFT_REQUIRES(context_lock) {
    if (op.end.finished.load(std::memory_order_acquire)) leave();
    else wait(lock, op);
    return op.end.status;
  }

  // ---- Sleeping on the context's epoll descriptor

  /// False when there is something to do. `op`: what the sleeper waits for; null: it is a progress thread.
  bool begin_sleep(const Operation* op = nullptr) WEFT_REQUIRES(context_lock);
  void end_sleep() WEFT_REQUIRES(context_lock);
  /// The longest sleep that is safe, as a CUDA stream or a provider of the network may not wake us; -1 = any.
  int nap_us() const WEFT_REQUIRES(context_lock);
  /// Whether every event wakes a sleeper at once, and no peer needs its work meanwhile. So it is on a
  /// network. In shared memory owners help with reads.
  bool rings() const WEFT_REQUIRES(context_lock);

  /// The device that a turn works on; null: none, or several.
  const device::cuda::Device* busy_device() const WEFT_REQUIRES(context_lock);

  // ---- The progress thread

  /// The thread that drives the context while no other does; null: none.
  void set_home(ProgressThread* home) { home_ = home; }
  ProgressThread* home() const { return home_; }
  /// Wakes it. From any thread.
  void wake_progress();
  DueTimer& due_timer() { return due_timer_; }
  /// See DueTimer.
  bool timer_is_due(int64_t now_ns);

 private:
  bool watches_device() const WEFT_REQUIRES(context_lock);
  /// For a caller whose operation ended without a wait(): sees to the data that it has left with the network.
  void leave() WEFT_REQUIRES(context_lock);
  void hand_on() WEFT_REQUIRES(context_lock);
  /// Leaves the lock to threads that want it, and takes it again.
  void give_way(Lock& lock) WEFT_REQUIRES(context_lock);
  void sleep(Lock& lock, const Operation& op, Deadline deadline) WEFT_REQUIRES(context_lock);

  Context& context_;
  ProgressThread* home_ = nullptr;
  DueTimer due_timer_;
};

}  // namespace weft::engine
