// Mutex and MutexLock: std::mutex and a lock on it, annotated so that clang's analysis follows them. A
// condition variable is a std::condition_variable_any, which waits with a MutexLock. Its condition is written
// as a loop: the analysis does not see that a lambda is called with the lock.
//
//   MutexLock lock(mutex_);
//   while (!ready_) changed_.wait(lock);
//
// Thread safety: Mutex as std::mutex; a MutexLock is its thread's.
#pragma once

#include <mutex>

#include "base/thread_annotations.h"

namespace weft {

class WEFT_CAPABILITY("mutex") Mutex {
 public:
  void lock() WEFT_ACQUIRE() { mutex_.lock(); }
  bool try_lock() WEFT_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() WEFT_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a lock while it lives, but for the time between unlock() and lock().
template <typename M>
class WEFT_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(M& mutex) WEFT_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() WEFT_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() WEFT_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() WEFT_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  M& mutex_;
  bool held_ = true;
};

}  // namespace weft
