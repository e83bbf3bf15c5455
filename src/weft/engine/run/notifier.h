// Notifier: the threads that call what was asked to be called when a stream has come to a position. Calls
// begin one after the other, in the order in which they were posted. One that blocks holds the others up for
// a millisecond, then another thread goes on with them: a callback may wait for operations whose callbacks
// wait, and so on.
//
// Thread safety: all methods. The mutex is a leaf: post() may be called under a context's and a stream's
// lock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace weft::engine {

class Notifier {
 public:
  using Call = std::function<void()>;

  /// The process's, which lives as long as somebody has it; a forked child has one of its own.
  /// Errors: system_error without a thread for it.
  static Result<std::shared_ptr<Notifier>> of_process();
  /// Whether the calling thread is inside of a call.
  static bool is_calling_here();

  Notifier() = default;
  /// Starts the first thread; before the first post(). Errors: system_error.
  Status begin();
  /// Nothing is posted any more, and every call has ended.
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  void post(Call call);

 private:
  void run();
  void carry_out_first() WEFT_REQUIRES(mutex_);
  void watch(MutexLock<Mutex>& lock) WEFT_REQUIRES(mutex_);
  void call_for_another() WEFT_REQUIRES(mutex_);
  Status start_another() WEFT_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Call> calls_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ WEFT_GUARDED_BY(mutex_);
  size_t idle_ WEFT_GUARDED_BY(mutex_) = 0;
  bool watching_ WEFT_GUARDED_BY(mutex_) = false;  // whether a thread waits for a call that may block
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
  uint64_t begun_ WEFT_GUARDED_BY(mutex_) = 0;          // calls so far
  uint64_t blocked_up_to_ WEFT_GUARDED_BY(mutex_) = 0;  // so many of them block if they have not ended
  size_t running_ WEFT_GUARDED_BY(mutex_) = 0;          // calls that have not ended
  size_t blocked_ WEFT_GUARDED_BY(mutex_) = 0;          // of these, how many are taken to block
};

}  // namespace weft::engine
