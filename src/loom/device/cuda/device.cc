// Contexts, memory, streams and events by the driver's functions.
#include "device/cuda/device.h"

#include "base/check.h"

namespace loom::cuda {
namespace {

DevicePointer address_of(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

Result<int> Device::count() {
  const auto loaded = cuda::driver();
  if (!loaded.ok()) return loaded.status();
  int devices = 0;
  LOOM_TRY(check((*loaded)->device_get_count(&devices), "cuDeviceGetCount"));
  return devices;
}

Result<std::unique_ptr<Device>> Device::open(int ordinal) {
  const Result<int> devices = count();
  if (!devices.ok()) return devices.status();
  if (ordinal < 0 || ordinal >= *devices)
    return fail(Code::invalid_argument, "there is no CUDA device {}: this process sees {}, numbered from 0",
                ordinal, *devices);
  const Driver& d = **cuda::driver();
  std::unique_ptr<Device> device(new Device);
  device->ordinal_ = ordinal;
  LOOM_TRY(check(d.device_get(&device->number_, ordinal), "cuDeviceGet"));
  char name[96] = "";
  LOOM_TRY(check(d.device_get_name(name, sizeof name - 1, device->number_), "cuDeviceGetName"));
  device->description_ =
      fmt::format("CUDA device {} ({}, compute capability {}.{})", ordinal, name,
                  device->attribute(kComputeCapabilityMajor), device->attribute(kComputeCapabilityMinor));
  if (device->attribute(kUnifiedAddressing) == 0)
    return fail(Code::unsupported, "{} has no addresses in common with the host (unified addressing)",
                device->description_);
  LOOM_TRY(check(d.primary_context_retain(&device->context_, device->number_),
                 fmt::format("the context of {} (cuDevicePrimaryCtxRetain)", device->description_)));
  return device;
}

Device::~Device() {
  if (context_ != nullptr) (void)(*cuda::driver())->primary_context_release(number_);
}

int Device::attribute(int which) const {
  int value = 0;
  return (*cuda::driver())->device_get_attribute(&value, which, number_) == kSuccess ? value : 0;
}

Result<device::MemoryState> Device::memory() const {
  const Scope scope(*this);
  size_t free = 0, all = 0;
  LOOM_TRY(check((*cuda::driver())->mem_get_info(&free, &all), "cuMemGetInfo"));
  return device::MemoryState{static_cast<int64_t>(free), static_cast<int64_t>(all)};
}

Result<device::Memory> Device::allocate(int64_t bytes) {
  LOOM_TRY(at_least_one("the number of bytes", bytes));
  const Scope scope(*this);
  DevicePointer pointer = 0;
  const int failed = (*cuda::driver())->mem_alloc(&pointer, static_cast<size_t>(bytes));
  if (failed == kOutOfMemory) {
    const Result<device::MemoryState> state = memory();
    const std::string free = state.ok() ? fmt::format("{:.2f} GiB of {:.2f} are free", gibibytes(state->free),
                                                      gibibytes(state->all))
                                        : "it does not say what is free";
    return fail(Code::out_of_memory,
                "{} has too little memory: {:.2f} GiB are needed, and {}; fewer sequences in a microbatch, "
                "checkpointing and offloading need less, and so do more ranks in a partition group",
                describe(), gibibytes(bytes), free);
  }
  LOOM_TRY(check(failed, fmt::format("{} bytes of memory on {} (cuMemAlloc)", bytes, describe())));
  return device::Memory(reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer)), bytes,
                        [this](std::byte* data) {
                          const Scope inside(*this);
                          (void)(*cuda::driver())->mem_free(address_of(data));
                        });
}

Result<device::Memory> Device::allocate_pinned(int64_t bytes) {
  LOOM_TRY(at_least_one("the number of bytes", bytes));
  const Scope scope(*this);
  void* memory = nullptr;
  LOOM_TRY(check((*cuda::driver())->mem_host_alloc(&memory, static_cast<size_t>(bytes), kHostAllocPortable),
                 fmt::format("{} bytes of pinned memory (cuMemHostAlloc)", bytes)));
  return device::Memory(static_cast<std::byte*>(memory), bytes, [this](std::byte* data) {
    const Scope inside(*this);
    (void)(*cuda::driver())->mem_free_host(data);
  });
}

Result<std::unique_ptr<device::Queue>> Device::make_queue() {
  const Scope scope(*this);
  StreamHandle* stream = nullptr;
  LOOM_TRY(check((*cuda::driver())->stream_create(&stream, kStreamNonBlocking),
                 fmt::format("a stream of {} (cuStreamCreate)", describe())));
  return std::unique_ptr<device::Queue>(new Queue(*this, stream));
}

Result<std::unique_ptr<device::Event>> Device::make_event() {
  const Scope scope(*this);
  EventHandle* event = nullptr;
  LOOM_TRY(check((*cuda::driver())->event_create(&event, kEventDisableTiming),
                 fmt::format("an event of {} (cuEventCreate)", describe())));
  return std::unique_ptr<device::Event>(new Event(*this, event));
}

// ---- Scope

Scope::Scope(const Device& device) {
  const Driver& d = **cuda::driver();
  ContextHandle* current = nullptr;
  (void)d.context_get_current(&current);
  pushed_ = current != device.context() && d.context_push(device.context()) == kSuccess;
}

Scope::~Scope() {
  ContextHandle* popped = nullptr;
  if (pushed_) (void)(*cuda::driver())->context_pop(&popped);
}

// ---- Event

Event::~Event() {
  const Scope scope(device_);
  (void)(*cuda::driver())->event_destroy(handle_);
}

Status Event::wait() {
  const Scope scope(device_);
  const Status reached = check((*cuda::driver())->event_synchronize(handle_),
                               fmt::format("work on {} (cuEventSynchronize)", device_.describe()));
  const MutexLock lock(mutex_);
  return failure_.ok() ? reached : failure_;
}

// ---- Queue

Queue::~Queue() {
  const Scope scope(device_);
  (void)(*cuda::driver())->stream_synchronize(stream_);
  (void)(*cuda::driver())->stream_destroy(stream_);
}

void Queue::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0 || !status().ok()) return;
  const Scope scope(device_);
  (void)keep(check(
      (*cuda::driver())->memcpy_async(address_of(to), address_of(from), static_cast<size_t>(bytes), stream_),
      fmt::format("a copy of {} bytes on {} (cuMemcpyAsync)", bytes, device_.describe())));
}

void Queue::fill(void* to, std::byte value, int64_t bytes) {
  if (bytes == 0 || !status().ok()) return;
  const Scope scope(device_);
  (void)keep(check((*cuda::driver())
                       ->memset_async(address_of(to), std::to_integer<unsigned char>(value),
                                      static_cast<size_t>(bytes), stream_),
                   fmt::format("a fill of {} bytes on {} (cuMemsetD8Async)", bytes, device_.describe())));
}

void Queue::record(device::Event& event) {
  const Scope scope(device_);
  auto& own = static_cast<Event&>(event);
  (void)keep(check((*cuda::driver())->event_record(own.handle(), stream_),
                   fmt::format("a moment on {} (cuEventRecord)", device_.describe())));
  own.keep(status());
}

void Queue::wait(const device::Event& event) {
  const Scope scope(device_);
  (void)keep(
      check((*cuda::driver())->stream_wait_event(stream_, static_cast<const Event&>(event).handle(), 0),
            fmt::format("a wait on {} (cuStreamWaitEvent)", device_.describe())));
}

Status Queue::drain() {
  const Scope scope(device_);
  (void)keep(check((*cuda::driver())->stream_synchronize(stream_),
                   fmt::format("work on {} (cuStreamSynchronize)", device_.describe())));
  return status();
}

}  // namespace loom::cuda
