// ThreadCalls: how often each thread has called the fake driver.
//
// Thread safety: every function; a thread's counts are written by that thread alone.
#pragma once

#include <sys/prctl.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "cuda/fake_driver/control.h"

namespace fake {

class ThreadCalls {
 public:
  /// The calling thread's. They outlive it.
  static ThreadCalls& mine() {
    static thread_local ThreadCalls* const own = new ThreadCalls;
    return *own;
  }
  /// Of all threads, living or gone, that had this name at their first call.
  static FakeCudaCalls of_threads(std::string_view name) {
    FakeCudaCalls sum{};
    for (const ThreadCalls* thread = newest_.load(); thread; thread = thread->next_) {
      if (name != thread->name_) continue;
      const FakeCudaCalls calls = thread->so_far();
      sum.work += calls.work;
      sum.entries += calls.entries;
    }
    return sum;
  }

  void count(std::string_view function) {
    // The fake's own names, of what is no call, have a space.
    if (function.find(' ') != function.npos) return;
    (enters(function) ? entries_ : work_).fetch_add(1, std::memory_order_relaxed);
  }
  void asked_in_vain() { work_.fetch_sub(1, std::memory_order_relaxed); }
  FakeCudaCalls so_far() const { return {work_.load(), entries_.load()}; }

 private:
  ThreadCalls() {
    prctl(PR_GET_NAME, name_);
    next_ = newest_.load();
    while (!newest_.compare_exchange_weak(next_, this)) {
    }
  }
  static bool enters(std::string_view function) {
    return function == "cuCtxGetCurrent" || function == "cuCtxPushCurrent" || function == "cuCtxPopCurrent" ||
           function == "cuThreadExchangeStreamCaptureMode";
  }

  static inline std::atomic<ThreadCalls*> newest_{nullptr};
  std::atomic<uint64_t> work_{0}, entries_{0};
  char name_[17] = "";
  ThreadCalls* next_ = nullptr;
};

}  // namespace fake
