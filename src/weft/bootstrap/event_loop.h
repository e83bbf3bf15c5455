// EventLoop: descriptors, timers and posted functions, all served by the one thread that calls loop(). It
// knows nothing of what it serves.
//
// Thread safety: post(), run() and stop() from any thread; the rest from the loop's thread only.
// Invariant: a callback whose watch or timer has been ended is not called any more, not even later in the
// same turn.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/status.h"

namespace weft::bootstrap {

class EventLoop {
 public:
  using Id = uint64_t;  // of a watch or a timer; never used twice, never 0
  using Task = std::function<void()>;
  using OnReady = std::function<void(uint32_t events)>;

  static Result<std::shared_ptr<EventLoop>> create();

  /// Serves until stop(); then drops all watches and timers and still runs what was posted.
  void loop();
  void stop();

  /// Runs `task` on the loop's thread, soon, in the order of posting; after loop() has ended, here and now.
  void post(Task task);
  /// As post(), and waits until it has run. On the loop's thread it runs at once.
  void run(Task task);
  bool on_this_thread() const { return thread_.load() == std::this_thread::get_id(); }

  /// Calls `ready` when `fd` has one of epoll's events. End it before closing the descriptor.
  Id watch(int fd, uint32_t events, OnReady ready);
  void change(Id watch, uint32_t events);
  void unwatch(Id watch);
  Id at(Deadline when, Task task);
  void cancel(Id timer);

 private:
  struct Watch {
    int fd;
    std::shared_ptr<OnReady> ready;  // shared: it may end its own watch while it runs
  };
  struct Timer {
    Id id;
    Task task;
  };

  EventLoop() = default;
  void wake();
  void run_posted();
  void run_timers();
  int next_timer_ms() const;
  void close();

  UniqueFd epoll_, wake_;
  std::atomic<std::thread::id> thread_{};
  std::atomic<bool> stopping_{false};
  Id last_id_ = 0;
  std::unordered_map<Id, Watch> watches_;
  std::multimap<int64_t, Timer> timers_;  // by time

  Mutex mutex_;
  std::vector<Task> posted_ WEFT_GUARDED_BY(mutex_);
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::bootstrap
