// The lock of a context: ContextMutex, which a Context owns, and Lock, which holds it.
//
// Clang's analysis compares locks by the expressions that name them, and a context is reached by many. So all
// contexts share one name here, `context_lock`: the analysis checks that the lock of some context is held. A
// thread holds the lock of one context at a time.
//
// Thread safety: ContextMutex all methods; a Lock is its thread's.
#pragma once

#include <atomic>

#include "base/biased_mutex.h"
#include "base/thread_annotations.h"

namespace weft::engine {

/// What annotations name; it has no state.
class WEFT_CAPABILITY("context's lock") ContextLockName {};
inline constexpr ContextLockName context_lock;

/// For callbacks, whose callers hold the lock and the analysis does not see: from here on it takes the lock
/// as held.
inline void context_lock_is_held() WEFT_ASSERT_CAPABILITY(context_lock) {}

class ContextMutex {
 public:
  /// Whether a thread wants the lock. A thread that spins with it then gives way.
  bool wanted() const { return wanting_.load(std::memory_order_relaxed) != 0; }

 private:
  friend class Lock;
  void lock() {
    if (!mutex_.try_lock()) [[unlikely]]
      lock_slowly();
  }
  void lock_slowly();
  void unlock() { mutex_.unlock(); }

  BiasedMutex mutex_;
  std::atomic<int> wanting_{0};  // threads that want the lock
};

/// Holds a context's lock while it lives, but for the time between unlock() and lock().
class WEFT_SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(ContextMutex& mutex) WEFT_ACQUIRE(context_lock) : mutex_(mutex) { mutex_.lock(); }
  /// Never called: a Lock that a function returns is made in its place.
  Lock(Lock&& other) WEFT_ACQUIRED_BY_VALUE(context_lock);
  ~Lock() WEFT_RELEASE() {
    if (held_) mutex_.unlock();
  }

  void lock() WEFT_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() WEFT_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  /// Calls `f` without the lock. The analysis does not follow a Lock that is passed by reference.
  template <typename F>
  void without(F f) WEFT_REQUIRES(context_lock) WEFT_NO_THREAD_SAFETY_ANALYSIS {
    unlock();
    f();
    lock();
  }

 private:
  ContextMutex& mutex_;
  bool held_ = true;
};

}  // namespace weft::engine
