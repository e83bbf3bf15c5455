// Mutex and MutexLock: std::mutex and a lock on it, annotated so that clang's thread-safety analysis
// (-Wthread-safety, `make check-threads`) follows them. Other compilers see no annotations.
//
// Thread safety: Mutex as std::mutex; a MutexLock is its thread's.
#pragma once

#include <mutex>

#if defined(__clang__)
#define LOOM_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define LOOM_THREAD_ANNOTATION(x)
#endif
/// A member that is read and written with the lock held.
#define LOOM_GUARDED_BY(x) LOOM_THREAD_ANNOTATION(guarded_by(x))

namespace loom {

class LOOM_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() LOOM_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() LOOM_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a mutex while it lives.
class LOOM_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOOM_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() LOOM_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace loom
