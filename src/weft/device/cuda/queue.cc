#include "device/cuda/queue.h"

namespace weft::device::cuda {

Ticket::~Ticket() {
  if (event_) queue_->events_.push_back(event_);
}

Result<bool> Ticket::done() const {
  const int state = (*driver())->event_query(event_);
  if (state == kNotReady) return false;
  if (Status ended = check(state, "work on a CUDA stream (cuEventQuery)"); !ended) return ended;
  return true;
}

Status Ticket::hold(StreamHandle* stream) const {
  return check((*driver())->stream_wait_event(stream, event_, 0), "cuStreamWaitEvent");
}

Result<std::unique_ptr<Queue>> Queue::create(Device& device) {
  const Scope scope(device);
  std::unique_ptr<Queue> queue(new Queue(device));
  const Driver& d = **driver();
  int least = 0, greatest = 0;
  WEFT_TRY(check(d.context_get_priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange"));
  WEFT_TRY(check(d.stream_create_with_priority(&queue->stream_, kStreamNonBlocking, greatest),
                 "cuStreamCreateWithPriority"));
  return queue;
}

Queue::~Queue() {
  if (!stream_) return;
  const Scope scope(device_);
  const Driver& d = **driver();
  (void)d.stream_synchronize(stream_);
  for (EventHandle* event : events_) (void)d.event_destroy(event);
  (void)d.stream_destroy(stream_);
}

Status Queue::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  return check((*driver())->memcpy_async(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                         bytes, stream_),
               "a copy of GPU memory (cuMemcpyAsync)");
}

Result<Ticket> Queue::mark() {
  const Driver& d = **driver();
  EventHandle* event = nullptr;
  if (events_.empty()) {
    WEFT_TRY(check(d.event_create(&event, kEventDisableTiming), "cuEventCreate"));
  } else {
    event = events_.back();
    events_.pop_back();
  }
  Ticket ticket(this, event);
  WEFT_TRY(check(d.event_record(event, stream_), "cuEventRecord"));
  return ticket;
}

Status Queue::warm_up(void* on_device, void* pinned, size_t bytes) {
  std::vector<Ticket> tickets;
  for (size_t i = 0; i < kEvents; ++i) {
    auto ticket = mark();
    if (!ticket) return ticket.status();
    tickets.push_back(ticket.take());
  }
  WEFT_TRY(copy(on_device, pinned, bytes));
  WEFT_TRY(copy(pinned, on_device, bytes));
  return drain();
}

Status Queue::drain() { return check((*driver())->stream_synchronize(stream_), "cuStreamSynchronize"); }

}  // namespace weft::device::cuda
