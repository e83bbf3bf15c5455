// The progress engine: the process's threads that drive operations for which no thread waits. Each context
// belongs to one of them. A thread without work sleeps.
//
// Thread safety: all methods.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/status.h"

namespace weft::engine {

class Context;

class ProgressThread;

class ProgressEngine {
 public:
  /// The process's engine; its threads start with the first context and end with the last. A forked child has
  /// one of its own.
  static ProgressEngine& instance();

  /// The thread that drives `context` from now on; valid until detach(). Errors: system_error when no thread
  /// can be started.
  Result<ProgressThread*> attach(Context& context);
  /// When this returns no progress thread is inside `context`. One that is the parent's, in a forked child,
  /// has none there.
  void detach(Context& context, ProgressThread* home);
  /// Something was submitted to a context of `home`, or its last waiter left with operations unfinished, or
  /// its timer was armed (DueTimer). Null: nobody is woken. May be called under a context's lock.
  static void wake(ProgressThread* home);
  /// Lets a progress thread write the flight recorders of all contexts; async-signal-safe.
  static void request_dumps();
  /// Writes the flight recorders on this thread, if they were requested and no progress thread has written
  /// them yet. Returns when they are written. Call it without a context's lock, before a communicator ends.
  void serve_dumps();

 private:
  explicit ProgressEngine(const ProgressEngine* before);

  const int process_;  // that its threads belong to
  /// Of the process that forked this one: kept reachable, so that it is no leak.
  [[maybe_unused]] const ProgressEngine* const before_;
  Mutex mutex_;
  std::vector<std::unique_ptr<ProgressThread>> threads_ WEFT_GUARDED_BY(mutex_);
  std::vector<Context*> attached_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::engine
