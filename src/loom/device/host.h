// The host as a device. Its memory is the process's. A queue does its work at once, in the call that queues
// it, or on a thread of its own: copies and files beside computation.
//
// Thread safety: as device.h.
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"

namespace loom::device {

class Host final : public Device {
 public:
  enum class Queues { at_once, on_threads };
  explicit Host(Queues queues = Queues::at_once) : queues_(queues) {}

  const std::string& describe() const override;
  bool is_host() const override { return true; }
  Result<MemoryState> memory() const override;
  Result<Memory> allocate(int64_t bytes) override;
  Result<Memory> allocate_pinned(int64_t bytes) override { return allocate(bytes); }
  Result<std::unique_ptr<Queue>> make_queue() override;
  Result<std::unique_ptr<Event>> make_event() override;

 private:
  Queues queues_;
};

/// A queue of the host: besides, it does whatever it is given.
class HostQueue : public Queue {
 public:
  using Work = std::function<Status()>;
  virtual void run(Work work) = 0;

  void copy(void* to, const void* from, int64_t bytes) final;
  void fill(void* to, std::byte value, int64_t bytes) final;
};

}  // namespace loom::device
