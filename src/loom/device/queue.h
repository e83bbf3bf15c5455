// Queue and Event: work of a device in order, and moments in it. A GPU's queue is a CUDA stream; the host's
// does its work at once, or on a thread.
//
// Failures. Queued work runs later, and fails later. So no call that queues work returns a Status: the
// first failure stays with the queue, all work after it is dropped, and drain(), Event::wait() and status()
// return it.
//
// Thread safety: one thread uses a queue at a time. An event is recorded by one thread, and may be waited for
// by others from then on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/mutex.h"
#include "base/status.h"

namespace loom::device {

/// A moment in the work of a queue: the last one that was recorded. It outlives the work that records it or
/// waits for it.
class Event {
 public:
  virtual ~Event() = default;
  /// Returns when the work before that moment is done; at once if none was recorded. Errors: of that work.
  virtual Status wait() = 0;
};

class Queue {
 public:
  virtual ~Queue() = default;  // waits for the work in it
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Queues a copy between any two of the device's memory and pinned memory of the host. They do not overlap.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// Queues that each of those bytes becomes `value`.
  virtual void fill(void* to, std::byte value, int64_t bytes) = 0;
  /// Makes the present end of the queue the event's moment.
  virtual void record(Event& event) = 0;
  /// Later work of this queue starts after the event's moment. The event belongs to the same device.
  virtual void wait(const Event& event) = 0;
  /// Returns when all work is done. Errors: of that work.
  virtual Status drain() = 0;

  /// The first failure so far.
  Status status() const {
    const MutexLock lock(mutex_);
    return failure_;
  }
  /// Keeps a failure, unless there is one; true while there is none.
  bool keep(const Status& status) {
    const MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = status;
    return failure_.ok();
  }

 private:
  mutable Mutex mutex_;
  Status failure_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom::device
