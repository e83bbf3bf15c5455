// Queue: a CUDA stream of ours, on which copies and kernels run in order, and tickets that say how far it is.
// It never waits for anything outside, so that everything in it ends by itself, as long as fewer streams wait
// than the process has connections to the device (waits.h); its priority, the highest, is no help
// there.
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

/// The moment at which everything that was in a queue before is done. Belongs to its queue, and must not
/// outlive it.
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
  /// Whether that moment has come; an error is what the work failed with.
  Result<bool> done() const;
  /// Makes what follows in a stream of anybody's wait for it.
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
  /// Waits for what is in it.
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
  /// Does a stream's first work, copies between the two, and makes events: what the driver needs for either
  /// it may wait for while a thread of the program is in another call of it. Returns when that is done. No
  /// copy inside the device, which would wait for multiprocessors.
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
