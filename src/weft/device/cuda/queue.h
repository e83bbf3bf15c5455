// Queue: a CUDA stream of Weft, on which copies and kernels run in order, and tickets that say how far it is.
// It never waits for anything outside. So everything in it ends by itself, as long as fewer streams wait than
// the process has connections to the device (waits.h). Its priority, the highest, does not help there.
//
// Thread safety: none; a thread that uses it is inside a Scope of its device.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/cuda/device.h"

namespace weft::device::cuda {

class Queue;

/// The moment at which all earlier work of a queue is done. Belongs to its queue, and must not outlive it.
class Ticket {
 public:
  Ticket() = default;
  Ticket(Ticket&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)), event_(std::exchange(other.event_, nullptr)) {}
  Ticket& operator=(Ticket&& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Ticket();

  bool valid() const { return event_ != nullptr; }
  /// Whether that moment has passed. Errors: the failure of the work.
  Result<bool> done() const;
  /// Makes later work of any stream wait for it.
  Status hold(StreamHandle* stream) const;

 private:
  friend class Queue;
  Ticket(Queue* queue, EventHandle* event) : queue_(queue), event_(event) {}
  Queue* queue_ = nullptr;
  EventHandle* event_ = nullptr;
};

class Queue {
 public:
  static Result<std::unique_ptr<Queue>> create(Device& device);
  /// Waits for the work in it.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Device& device() const { return device_; }
  StreamHandle* stream() const { return stream_; }
  /// Copies between any two of device memory, of any device, and pinned host memory.
  Status copy(void* to, const void* from, size_t bytes);
  Result<Ticket> mark();
  /// Returns when it is empty.
  Status drain();
  /// Does a stream's first work, copies between host and device, and makes events, and returns when that is
  /// done. For the first of either the driver may wait until another thread has left its own call of the
  /// driver. It makes no copy inside the device, which would wait for multiprocessors.
  Status warm_up(void* on_device, void* pinned, size_t bytes);

 private:
  friend class Ticket;
  explicit Queue(Device& device) : device_(device) {}

  static constexpr size_t kEvents = 64;  // more than most operations have tickets at a time

  Device& device_;
  StreamHandle* stream_ = nullptr;
  std::vector<EventHandle*> events_;  // not in use
};

}  // namespace weft::device::cuda
