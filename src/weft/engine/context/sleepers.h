// Sleepers: the threads that wait in a context, and how they are woken. One of them at a time sleeps on the
// context's epoll descriptor, in which the doorbell is; the others sleep on a condition variable.
// No wake-up is lost: a thread announces that it will sleep, and then looks for submissions a last time. A
// thread that submits looks for that announcement afterwards.
//
// Thread safety: under the context's lock, but for ring(), asleep() and any_waiting().
#pragma once

#include <atomic>
#include <condition_variable>

#include "base/fd.h"
#include "base/status.h"
#include "engine/context/context_lock.h"

namespace weft::engine {

struct Operation;

class Sleepers {
 public:
  /// Makes the doorbell and adds it to an epoll instance.
  Status open(int epoll_fd);

  // ---- Threads that wait for an operation

  bool any_waiting() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  void begin_wait() WEFT_REQUIRES(context_lock) {
    waiting_.store(waiting_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    // A progress thread that sleeps here does not drive while another thread waits.
    if (taken_) ring();
  }
  /// True: no other thread waits.
  bool end_wait() WEFT_REQUIRES(context_lock) { return waiting_.fetch_sub(1) == 1; }

  // ---- The one that sleeps on the epoll descriptor

  /// Whether a thread sleeps on it.
  bool taken() const WEFT_REQUIRES(context_lock) { return taken_; }
  bool asleep() const { return asleep_.load(); }
  void announce() { asleep_.store(true); }
  void withdraw() { asleep_.store(false); }
  /// `op` is what the sleeper waits for; null: it is a progress thread.
  void begin_sleep(const Operation* op) WEFT_REQUIRES(context_lock) {
    taken_ = true;
    sleeps_for_ = op;
  }
  void end_sleep() WEFT_REQUIRES(context_lock);
  /// Whether a thread sleeps until its operation has ended.
  bool waits_for_operation() const WEFT_REQUIRES(context_lock) { return sleeps_for_ != nullptr; }

  // ---- The others

  /// Sleeps until something has ended, for a millisecond at most.
  void sleep_beside(Lock& lock) WEFT_REQUIRES(context_lock);

  /// Wakes the thread on the epoll descriptor.
  void ring() const;
  /// Wakes those that wait for `op`, which has ended: not all ends come from what a sleeper watches.
  void operation_ended(const Operation& op) WEFT_REQUIRES(context_lock) {
    if (beside_ > 0) ended_.notify_all();
    if (sleeps_for_ == &op) ring();
  }

 private:
  UniqueFd doorbell_;
  std::atomic<int> waiting_{0};  // changed under the lock
  std::atomic<bool> asleep_{false};
  bool taken_ WEFT_GUARDED_BY(context_lock) = false;
  const Operation* sleeps_for_ WEFT_GUARDED_BY(context_lock) = nullptr;
  std::condition_variable_any ended_;
  int beside_ WEFT_GUARDED_BY(context_lock) = 0;
};

}  // namespace weft::engine
