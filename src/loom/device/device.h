// Device: where a rank computes, as everything above sees it: memory, queues and events. There are two: the
// host (host.h), and a CUDA device (cuda/device.h). Each has a table of operators (ops/operators.h).
//
// Thread safety: every function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "device/memory.h"
#include "device/queue.h"

namespace loom::device {

/// Bytes of a device's memory.
struct MemoryState {
  int64_t free = 0;
  int64_t all = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// "CUDA device 0 (NVIDIA H100, compute capability 9.0)": what sentences call it.
  virtual const std::string& describe() const = 0;
  /// Whether the host reads and writes its memory as its own.
  virtual bool is_host() const { return false; }
  virtual Result<MemoryState> memory() const = 0;
  /// Memory of the device, its content undefined. It must not outlive the device. Errors: out_of_memory,
  /// which says what there is; invalid_argument for no bytes.
  virtual Result<Memory> allocate(int64_t bytes) = 0;
  /// Memory of the host from and to which queues copy without a detour, its content undefined. Errors: as
  /// above.
  virtual Result<Memory> allocate_pinned(int64_t bytes) = 0;
  /// Queues and events must not outlive the device.
  virtual Result<std::unique_ptr<Queue>> make_queue() = 0;
  virtual Result<std::unique_ptr<Event>> make_event() = 0;
};

}  // namespace loom::device
