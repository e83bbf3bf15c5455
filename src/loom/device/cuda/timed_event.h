// TimedEvent: an event of a stream that takes the time.
//
// Thread safety: one thread at a time.
#pragma once

#include "device/cuda/driver.h"

namespace loom::cuda {

class TimedEvent {
 public:
  /// The context of the events' device is current. `status` says whether it could be made.
  explicit TimedEvent(Status& status) {
    status = check((*driver())->event_create(&handle_, kEventDefault), "cuEventCreate");
  }
  ~TimedEvent() {
    if (handle_ != nullptr) (void)(*driver())->event_destroy(handle_);
  }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  EventHandle* get() const { return handle_; }

  Status record(StreamHandle* stream) const {
    return check((*driver())->event_record(handle_, stream), "cuEventRecord");
  }
  /// From `begin` to this event, both of which are over.
  Result<float> ms_since(const TimedEvent& begin) const {
    float ms = 0;
    LOOM_TRY(check((*driver())->event_elapsed_time(&ms, begin.handle_, handle_), "cuEventElapsedTime"));
    return ms;
  }

 private:
  EventHandle* handle_ = nullptr;
};

}  // namespace loom::cuda
