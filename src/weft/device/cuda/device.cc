#include "device/cuda/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "base/fork.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "device/cuda/suits.h"
#include "device/cuda/waits.h"

namespace weft::device::cuda {
namespace {

constexpr size_t kFlagsAtOnce = 64;

DevicePointer to_device(const void* address) { return reinterpret_cast<uintptr_t>(address); }

int attribute(const Driver& d, int which, DeviceNumber device) {
  int value = 0;
  return d.device_get_attribute(&value, which, device) == kSuccess ? value : 0;
}

/// The properties of a device that need no context.
struct Identity {
  DeviceNumber number = 0;
  Uuid uuid{};
  std::string description;
};

/// Fails where Weft cannot take the device's memory.
Result<Identity> identify(int ordinal) {
  auto devices = Device::count();
  if (!devices) return devices.status();
  if (ordinal < 0 || ordinal >= *devices)
    return fail(Code::invalid_argument, "there is no CUDA device {}: this process sees {}, numbered from 0",
                ordinal, *devices);
  const Driver& d = **driver();
  Identity identity;
  WEFT_TRY(check(d.device_get(&identity.number, ordinal), "cuDeviceGet"));
  char name[96] = "";
  WEFT_TRY(check(d.device_get_name(name, sizeof name - 1, identity.number), "cuDeviceGetName"));
  WEFT_TRY(check(d.device_get_uuid(&identity.uuid, identity.number), "cuDeviceGetUuid"));
  identity.description = fmt::format("CUDA device {} ({}, compute capability {}.{})", ordinal, name,
                                     attribute(d, kComputeCapabilityMajor, identity.number),
                                     attribute(d, kComputeCapabilityMinor, identity.number));
  if (attribute(d, kUnifiedAddressing, identity.number) == 0)
    return fail(Code::unsupported, "{} has no addresses in common with the host (unified addressing)",
                identity.description);
  return identity;
}

}  // namespace

Result<int> Device::count() {
  auto loaded = driver();
  if (!loaded) return loaded.status();
  int devices = 0;
  WEFT_TRY(check((*loaded)->device_get_count(&devices), "cuDeviceGetCount"));
  return devices;
}

Result<int> Device::current() {
  auto loaded = driver();
  if (!loaded) return loaded.status();
  ContextHandle* context = nullptr;
  DeviceNumber device = 0;
  WEFT_TRY(check((*loaded)->context_get_current(&context), "cuCtxGetCurrent"));
  if (context) WEFT_TRY(check((*loaded)->context_get_device(&device), "cuCtxGetDevice"));
  return device;
}

Status suits(int ordinal) { return identify(ordinal).status(); }

Result<Device*> Device::open(int ordinal) {
  static ForkSafeMutex mutex;
  static auto* const opened = new std::map<int, Device*>;
  const MutexLock guard(mutex);
  if (auto found = opened->find(ordinal); found != opened->end()) return found->second;
  Device* const device = new Device;
  if (Status made = device->open_context(ordinal); !made) {
    delete device;
    return made;
  }
  opened->emplace(ordinal, device);
  return device;
}

Status Device::open_context(int ordinal) {
  auto identity = identify(ordinal);
  if (!identity) return identity.status();
  const Driver& d = **driver();
  ordinal_ = ordinal;
  number_ = identity->number;
  uuid_ = identity->uuid;
  description_ = identity->description;
  network_order_ = attribute(d, kGpuDirectWritesOrdering, number_);
  flushes_network_writes_ =
      d.flush_gpu_direct_writes && (attribute(d, kGpuDirectFlushOptions, number_) & kFlushByHost);
  WEFT_TRY(check(d.primary_context_retain(&context_, number_), "cuDevicePrimaryCtxRetain"));
  const Scope scope(*this);
  WEFT_TRY(add_flags());
  why_no_memory_operations_ = probe_memory_operations();
  return {};
}

// Tries them once: the driver's attribute for them belongs to an older interface.
Status Device::probe_memory_operations() {
  const Driver& d = **driver();
  if (settings().cuda_memops == "off") return fail(Code::unsupported, "WEFT_CUDA_MEMOPS is off");
  if (!d.stream_wait_value || !d.stream_write_value)
    return fail(Code::unsupported,
                "the driver has no cuStreamWaitValue32 (it is for CUDA {}.{}, 11.7 brought it)",
                d.version / 1000, d.version % 1000 / 10);
  if (settings().cuda_memops == "auto") WEFT_TRY(streams_may_wait(d));
  StreamHandle* stream = nullptr;
  WEFT_TRY(check(d.stream_create(&stream, kStreamNonBlocking), "cuStreamCreate"));
  Flags* flags = nullptr;
  {
    const MutexLock lock(flags_mutex_);
    flags = free_flags_.back();
  }
  const uint32_t turn = ++flags->turn;
  const DevicePointer ready = flags->address_of_ready();
  Status tried = check(d.stream_write_value(stream, ready, turn, kWriteValueDefault), "cuStreamWriteValue32");
  if (tried.ok())
    tried = check(d.stream_wait_value(stream, ready, turn, kWaitValueGeq), "cuStreamWaitValue32");
  if (tried.ok()) tried = check(d.stream_synchronize(stream), "cuStreamSynchronize");
  (void)d.stream_destroy(stream);
  return tried;
}

Status Device::can_be_captured() {
  std::call_once(captures_probed_, [this] {
    const Scope scope(*this);
    why_no_captures_ = probe_captures();
  });
  return why_no_captures_;
}

// On a stream of our own: an operation that cannot be captured would spoil the caller's capture.
Status Device::probe_captures() {
  WEFT_TRY(why_no_memory_operations_);
  const Driver& d = **driver();
  if (!d.stream_get_capture_info || !d.graph_retain_user_object || !d.user_object_create ||
      !d.user_object_release)
    return fail(Code::unsupported,
                "the driver has no user objects for graphs (it is for CUDA {}.{}, 11.3 brought them)",
                d.version / 1000, d.version % 1000 / 10);
  auto flags = take_flags();
  if (!flags) return flags.status();
  StreamHandle* stream = nullptr;
  Status tried = check(d.stream_create(&stream, kStreamNonBlocking), "cuStreamCreate");
  if (tried.ok()) {
    GraphHandle* graph = nullptr;
    tried = check(d.stream_begin_capture(stream, kCaptureModeRelaxed), "cuStreamBeginCapture");
    if (tried.ok()) {
      tried = check(d.stream_wait_value(stream, (*flags)->address_of_done(), 0, kWaitValueGeq),
                    "cuStreamWaitValue32 in a capture");
      const Status ended = check(d.stream_end_capture(stream, &graph), "cuStreamEndCapture");
      if (tried.ok()) tried = ended;
    }
    if (graph) (void)d.graph_destroy(graph);
    (void)d.stream_destroy(stream);
  }
  give_flags(*flags);
  return tried;
}

Status Device::orders_network_writes() const {
  if (network_order_ >= kFlushToOwner || flushes_network_writes_) return {};
  return fail(Code::unsupported,
              "{} does not order a network interface's writes, and its driver cannot flush them "
              "(cuFlushGPUDirectRDMAWrites)",
              description_);
}

Status Device::flush_network_writes() const {
  if (network_order_ >= kFlushToAll || !flushes_network_writes_) return {};
  return check((*driver())->flush_gpu_direct_writes(kFlushCurrentContext, kFlushToAll),
               "cuFlushGPUDirectRDMAWrites");
}

Status Device::add_flags() {
  const Driver& d = **driver();
  void* memory = nullptr;
  WEFT_TRY(
      check(d.mem_host_alloc(&memory, kFlagsAtOnce * sizeof(Flags), kHostAllocPortable | kHostAllocMapped),
            "pinned memory for flags (cuMemHostAlloc)"));
  // With unified addressing it is the same address on all devices that CUDA 11 supports. The driver decides.
  DevicePointer on_device = to_device(memory);
  if (d.mem_host_get_device_pointer(&on_device, memory, 0) != kSuccess) on_device = to_device(memory);
  auto* const flags = static_cast<Flags*>(memory);
  const MutexLock guard(flags_mutex_);
  for (size_t i = 0; i < kFlagsAtOnce; ++i) {
    free_flags_.push_back(new (flags + i) Flags);
    free_flags_.back()->on_device = on_device + i * sizeof(Flags);
  }
  return {};
}

Result<Device::Flags*> Device::take_flags() {
  MutexLock lock(flags_mutex_);
  while (free_flags_.empty()) {
    lock.unlock();
    WEFT_TRY(add_flags());
    lock.lock();
  }
  Flags* const flags = free_flags_.back();
  free_flags_.pop_back();
  return flags;
}

void Device::give_flags(Flags* flags) {
  const MutexLock guard(flags_mutex_);
  free_flags_.push_back(flags);
}

Status Device::reach(int ordinal) {
  if (ordinal == ordinal_) return {};
  auto other = open(ordinal);
  if (!other) return other.status();
  const MutexLock guard(reached_mutex_);
  if (std::find(reached_.begin(), reached_.end(), ordinal) != reached_.end()) return {};
  const Driver& d = **driver();
  int can = 0;
  WEFT_TRY(check(d.device_can_access_peer(&can, number_, (*other)->number_), "cuDeviceCanAccessPeer"));
  if (!can)
    return fail(Code::unsupported, "{} cannot reach the memory of {} (WEFT_CUDA_IPC=off does without)",
                description_, (*other)->description_);
  const Scope scope(*this);
  const int enabled = d.context_enable_peer_access((*other)->context_, 0);
  if (enabled != kPeerAccessAlreadyEnabled) WEFT_TRY(check(enabled, "cuCtxEnablePeerAccess"));
  reached_.push_back(ordinal);
  return {};
}

namespace {

/// What a thread has made of itself for calls of the driver.
struct ThreadState {
  const Device* inside = nullptr;  // the device of its innermost Scope
  bool keeps_context = false;      // it is a thread of Weft
  bool relaxed = false;            // … whose capture mode is relaxed for good
};
thread_local ThreadState t_thread;

}  // namespace

void keep_context_on_this_thread() { t_thread.keeps_context = true; }

Scope::Scope(const Device& device) : outer_(std::exchange(t_thread.inside, &device)) {
  if (outer_ == &device) return;
  const Driver& d = **driver();
  ContextHandle* current = nullptr;
  (void)d.context_get_current(&current);
  if (current != device.context()) {
    (void)d.context_push(device.context());
    pops_ = current || !t_thread.keeps_context;
  }
  if (outer_ || t_thread.relaxed) return;
  (void)d.thread_exchange_capture_mode(&mode_);
  t_thread.relaxed = t_thread.keeps_context;
  restores_mode_ = !t_thread.relaxed;
}

Scope::~Scope() {
  t_thread.inside = outer_;
  if (!restores_mode_ && !pops_) return;
  const Driver& d = **driver();
  if (restores_mode_) (void)d.thread_exchange_capture_mode(&mode_);
  ContextHandle* popped = nullptr;
  if (pops_) (void)d.context_pop(&popped);
}

// ---- Addresses

Result<Place> locate(const void* address) {
  const Driver& d = **driver();
  unsigned memory_type = 0;
  unsigned long long buffer_id = 0;
  int managed = 0, ordinal = -1, shareable = 0;
  DevicePointer base = 0;
  size_t bytes = 0;
  int attributes[] = {kMemoryType,   kBufferId,   kIsManaged, kDeviceOrdinal,
                      kIsIpcCapable, kRangeStart, kRangeBytes};
  void* values[] = {&memory_type, &buffer_id, &managed, &ordinal, &shareable, &base, &bytes};
  const int asked = d.pointer_get_attributes(std::size(attributes), attributes, values, to_device(address));
  // For an address that CUDA does not know, newer drivers return success, and older ones an invalid value.
  if (asked == kInvalidValue) memory_type = kNoMemoryType;
  else WEFT_TRY(check(asked, "cuPointerGetAttributes"));
  Place place;
  if (memory_type == kNoMemoryType) return place;
  place.kind = managed                        ? Place::Kind::managed
               : memory_type == kDeviceMemory ? Place::Kind::device
                                              : Place::Kind::pinned;
  place.ordinal = ordinal;
  place.buffer_id = buffer_id;
  place.shareable = place.kind == Place::Kind::device && shareable != 0;
  if (place.shareable) {
    place.base = base;
    place.bytes = bytes;
  }
  return place;
}

// Rounds up: the end of an allocation belongs to its last page, even if it does not fill that page.
Result<DmaBuf> make_dma_buf(const void* address, size_t bytes) {
  const Driver& d = **driver();
  if (!d.mem_get_handle_for_range)
    return fail(Code::unsupported, "the driver is older than CUDA 11.7, which makes dma-bufs");
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const DevicePointer begin = to_device(address);
  const DevicePointer first = begin / page * page, last = (begin + bytes + page - 1) / page * page;
  int fd = -1;
  WEFT_TRY(check(d.mem_get_handle_for_range(&fd, first, last - first, kDmaBufHandle, 0),
                 "a dma-buf of GPU memory (cuMemGetHandleForAddressRange)"));
  return DmaBuf{UniqueFd(fd), begin - first};
}

Result<Place> check_buffer(const Device& device, const char* name, const void* address, uint64_t bytes) {
  auto place = locate(address);
  if (!place) return place.status().in(name);
  switch (place->kind) {
    case Place::Kind::pageable:
      return fail(
          Code::invalid_pointer,
          "{} is {}, which CUDA does not know (host memory, or freed): this communicator is of {}; pass "
          "memory of that device, managed memory, or pinned host memory",
          name, address, device.describe());
    case Place::Kind::device:
      if (place->ordinal != device.ordinal())
        return fail(Code::invalid_pointer, "{} is memory of CUDA device {}, but this communicator is of {}",
                    name, place->ordinal, device.describe());
      break;
    default: break;
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address);
  if (place->shareable && begin + bytes > place->base + place->bytes)
    return fail(Code::invalid_pointer, "{} needs {} bytes, but its allocation of {} bytes ends after {}",
                name, bytes, place->bytes, place->base + place->bytes - begin);
  return place;
}

}  // namespace weft::device::cuda
