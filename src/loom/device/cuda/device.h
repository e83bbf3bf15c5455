// A CUDA device: its primary context, which Weft and libraries share, memory, and streams as queues.
//
// Thread safety: Device as device/device.h, Queue and Event as device/queue.h.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/driver.h"
#include "device/device.h"

namespace loom::cuda {

class Device final : public device::Device {
 public:
  /// Errors: driver()'s; invalid_argument for an ordinal that does not exist; unsupported for a device
  /// without addresses in common with the host; system_error where its context cannot be had.
  static Result<std::unique_ptr<Device>> open(int ordinal);
  /// The devices that the process sees. Errors: driver()'s.
  static Result<int> count();
  ~Device() override;

  const std::string& describe() const override { return description_; }
  Result<device::MemoryState> memory() const override;
  Result<device::Memory> allocate(int64_t bytes) override;
  Result<device::Memory> allocate_pinned(int64_t bytes) override;
  Result<std::unique_ptr<device::Queue>> make_queue() override;
  Result<std::unique_ptr<device::Event>> make_event() override;

  int ordinal() const { return ordinal_; }
  ContextHandle* context() const { return context_; }
  int multiprocessors() const { return attribute(kMultiprocessorCount); }
  /// 10 × major + minor: 90 of an H100.
  int capability() const {
    return 10 * attribute(kComputeCapabilityMajor) + attribute(kComputeCapabilityMinor);
  }
  /// Shared memory that a block may have.
  int shared_bytes() const { return attribute(kMostSharedBytesOfBlock); }

 private:
  Device() = default;
  int attribute(int which) const;

  int ordinal_ = 0;
  DeviceNumber number_ = 0;
  ContextHandle* context_ = nullptr;
  std::string description_;
};

/// Makes a device's context current on the calling thread while it lives.
class Scope {
 public:
  explicit Scope(const Device& device);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool pushed_ = false;
};

class Event final : public device::Event {
 public:
  Event(Device& device, EventHandle* handle) : device_(device), handle_(handle) {}
  ~Event() override;
  Status wait() override;
  EventHandle* handle() const { return handle_; }
  /// Takes the failure that a queue had when it recorded the event.
  void keep(const Status& failure) {
    const MutexLock lock(mutex_);
    failure_ = failure;
  }

 private:
  Device& device_;
  EventHandle* handle_;
  Mutex mutex_;
  Status failure_ LOOM_GUARDED_BY(mutex_);
};

class Queue final : public device::Queue {
 public:
  Queue(Device& device, StreamHandle* stream) : device_(device), stream_(stream) {}
  ~Queue() override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void fill(void* to, std::byte value, int64_t bytes) override;
  void record(device::Event& event) override;
  void wait(const device::Event& event) override;
  Status drain() override;

  Device& device() const { return device_; }
  StreamHandle* stream() const { return stream_; }

 private:
  Device& device_;
  StreamHandle* stream_;
};

}  // namespace loom::cuda
