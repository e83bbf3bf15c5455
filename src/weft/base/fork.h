// Forks: how the library notices that its process was forked, and what a child gives up.
//
// A child of fork() has copies of its parent's sockets. While it lives, the kernel does not close them, and
// the parent's peers would not learn of the parent's death. So the library's sockets are made by
// make_private_socket(), and a handler of pthread_atfork() puts a dead socket in the place of each one in the
// child. The number stays taken, so that no copy of the library's state can reach a file that the child opens
// later. Nothing is shut down, and the parent's epoll sets do not change.
//
// A handle keeps the generation of the process that has made it. A child is of a later generation, and
// refuses handles of its parent's. No handlers run in a child of a raw clone() or of _Fork(). Its copy of the
// generation is wiped (MADV_WIPEONFORK), by which it is noticed at its first call, and then it gives its
// sockets up. A child of vfork() shares its parent's memory and is not noticed: it may only call exec or
// _exit.
//
// Thread safety: all functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/status.h"

namespace weft {

/// Tells this process from the one that forked it; never 0.
uint32_t process_generation();

namespace forks {
extern std::atomic<uint32_t>* current;  // 0 there: of nobody yet
}

/// Whether something that was made in `generation` belongs to this process.
inline bool is_of_this_process(uint32_t generation) {
  return forks::current->load(std::memory_order_relaxed) == generation;
}

/// To whom a handle belongs.
class Ownership {
 public:
  Ownership();
  bool here() const { return is_of_this_process(generation_); }
  /// Why a forked child cannot use what its parent has made: `what` is its name in the sentence. ok in the
  /// process itself.
  Status check(const char* what) const;

 private:
  const uint32_t generation_;
  const int process_;
};

/// Calls `hook` in every forked child, before it goes on; where no handlers ran, at the child's first call.
/// The child has one thread then, and a hook takes no ForkSafeMutex. Hooks stay for ever.
void on_fork_in_child(void (*hook)());

/// A mutex that no other thread holds when the process is forked, so that a child can take it. For what a
/// process has one of; never destroyed. A thread that forks while it holds one (inside of libraries that
/// start programs, as CUDA's driver does) holds it in the child as well.
class WEFT_CAPABILITY("mutex") ForkSafeMutex {
 public:
  struct Unlisted {};

  ForkSafeMutex();
  /// Which the handlers of fork() list themselves.
  constexpr explicit ForkSafeMutex(Unlisted) {}
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() WEFT_ACQUIRE() {
    mutex_.lock();
    holder_.store(this_thread(), std::memory_order_relaxed);
  }
  bool try_lock() WEFT_TRY_ACQUIRE(true) {
    if (!mutex_.try_lock()) return false;
    holder_.store(this_thread(), std::memory_order_relaxed);
    return true;
  }
  void unlock() WEFT_RELEASE() {
    holder_.store(nullptr, std::memory_order_relaxed);
    mutex_.unlock();
  }
  bool held_by_this_thread() const { return holder_.load(std::memory_order_relaxed) == this_thread(); }

 private:
  /// The same in a child, for the thread that forked.
  static const void* this_thread() {
    static thread_local const char mark = 0;
    return &mark;
  }

  std::mutex mutex_;
  std::atomic<const void*> holder_{nullptr};
};

namespace forks {
ForkSafeMutex& sockets_mutex();
void note_socket(int fd);
}  // namespace forks

/// A socket that forked children give up: what `open` returns, which leaves errno as it was. `open` must not
/// block, since a fork waits for it.
template <typename Open>
UniqueFd make_private_socket(Open open) {
  const MutexLock lock(forks::sockets_mutex());
  UniqueFd made(open());
  if (made.valid()) forks::note_socket(made.get());
  return made;
}

}  // namespace weft
