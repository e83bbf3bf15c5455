// KernelTimes: how long each piece of a queue's work takes on the GPU: kernels, products, fills and copies,
// by an event before and one behind each. The events take a microsecond or two each, and a queue that is
// timed is a little slower. What passes between two pieces is in no time.
//
// No GPU has run it so far.
//
// Thread safety: one thread at a time.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "device/cuda/device.h"
#include "device/cuda/timed_event.h"

namespace loom::cuda {

/// All pieces of one name in one section.
struct KernelTime {
  std::string section;  // what was under way: "forward"
  std::string name;     // of the kernel, or of the product with its sizes
  int64_t calls = 0;
  double ms = 0;  // together
};

class KernelTimes {
 public:
  /// The queue outlives it.
  explicit KernelTimes(Queue& queue) : queue_(queue) {}
  ~KernelTimes();
  KernelTimes(const KernelTimes&) = delete;
  KernelTimes& operator=(const KernelTimes&) = delete;

  /// What comes from now on is part of this.
  void enter(const char* section) { section_ = section; }
  /// Around each piece of work. The queue keeps failures.
  void begin(const std::string& name);
  void end();
  /// Waits for the queue, and forgets what it has timed. The longest come first.
  Result<std::vector<KernelTime>> take();

 private:
  struct Piece {
    std::string section, name;
    const TimedEvent *begin, *end;
  };
  const TimedEvent* record();

  Queue& queue_;
  std::string section_;
  std::deque<TimedEvent> events_;  // used again by the next step
  size_t used_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace loom::cuda
