// The fake driver's exported functions: arguments are checked as CUDA checks them, the rest is world.h's.
#include "cuda/fake_driver/entry.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cuda/fake_driver/control.h"
#include "cuda/fake_driver/races.h"
#include "cuda/fake_driver/thread_calls.h"

using namespace fake;

namespace {

constexpr uint64_t kIpcMagic = 0x66616b6569706331;

struct IpcContent {
  uint64_t magic;
  int32_t pid, fd;
  uint64_t bytes;
  int32_t ordinal;
  uint64_t address, id;
};
static_assert(sizeof(IpcContent) <= sizeof(IpcHandle));

/// Where a stream of a device finds a word; null where it cannot.
uint32_t* word_for_stream(DevicePointer address, int ordinal) {
  return reinterpret_cast<uint32_t*>(
      bytes_for_kernel(reinterpret_cast<void*>(static_cast<uintptr_t>(address)), sizeof(uint32_t), ordinal));
}
Piece write_to(uint32_t* word, uint32_t value) {
  return [word, value] {
    note_word_written(word);
    std::atomic_ref(*word).store(value, std::memory_order_release);
    return true;
  };
}
Piece wait_for(uint32_t* word, uint32_t value) {
  return [word, value] {
    if (static_cast<int32_t>(std::atomic_ref(*word).load(std::memory_order_acquire) - value) < 0)
      return false;
    note_word_seen(word);
    return true;
  };
}

}  // namespace

// ---- Devices and contexts

FAKE_API int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  if (World::instance().devices == 0) return kNoDevice;
  World::instance().initialized.store(true);
  return World::instance().enter("cuInit");
}
FAKE_API int cuDriverGetVersion(int* version) {
  *version = World::instance().version;
  return kSuccess;
}
FAKE_API int cuGetErrorName(int error, const char** name) {
  *name = error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == kOutOfMemory  ? "CUDA_ERROR_OUT_OF_MEMORY"
                                   : "CUDA_ERROR_OF_THE_FAKE";
  return kSuccess;
}
FAKE_API int cuGetErrorString(int error, const char** text) {
  *text = error == kIllegalAddress ? "an illegal memory access was encountered"
          : error == kOutOfMemory  ? "out of memory"
                                   : "what the fake driver says";
  return kSuccess;
}
FAKE_API int cuDeviceGetCount(int* count) {
  ENTER(cuDeviceGetCount);
  *count = World::instance().devices;
  return kSuccess;
}
FAKE_API int cuDeviceGet(DeviceNumber* device, int ordinal) {
  ENTER(cuDeviceGet);
  if (ordinal < 0 || ordinal >= World::instance().devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
FAKE_API int cuDeviceGetName(char* name, int bytes, DeviceNumber) {
  ENTER(cuDeviceGetName);
  std::strncpy(name, "fake device", static_cast<size_t>(bytes));
  return kSuccess;
}
// As CUDA's, where the devices are parts of one GPU (MIG): the whole one's.
FAKE_API int cuDeviceGetUuid(Uuid* uuid, DeviceNumber) {
  ENTER(cuDeviceGetUuid);
  std::memset(uuid, 0, sizeof *uuid);
  return kSuccess;
}
FAKE_API int cuDeviceGetUuid_v2(Uuid* uuid, DeviceNumber device) {
  ENTER(cuDeviceGetUuid);
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = static_cast<char>(device + 1);
  return kSuccess;
}
FAKE_API int cuDeviceGetAttribute(int* value, int attribute, DeviceNumber device) {
  ENTER(cuDeviceGetAttribute);
  constexpr int kPciBusId = 33;
  switch (attribute) {
    case kPciBusId: *value = device; break;
    case kMultiprocessorCount: *value = World::instance().multiprocessors; break;
    case kUnifiedAddressing: *value = device != World::instance().unaddressed; break;
    case kComputeCapabilityMajor: *value = World::instance().capability / 10; break;
    case kComputeCapabilityMinor: *value = World::instance().capability % 10; break;
    case kMostSharedBytesOfBlock: *value = 227 << 10; break;  // of compute capability 9.0
    case kGpuDirectFlushOptions: *value = World::instance().flushes ? kFlushByHost : 0; break;
    default: *value = 0;
  }
  return kSuccess;
}
FAKE_API int cuDeviceGetPCIBusId(char* text, int bytes, DeviceNumber device) {
  ENTER(cuDeviceGetPCIBusId);
  snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return kSuccess;
}
FAKE_API int cuDeviceCanAccessPeer(int* can, DeviceNumber device, DeviceNumber peer) {
  ENTER(cuDeviceCanAccessPeer);
  *can = World::instance().peers && device != peer;
  return kSuccess;
}
FAKE_API int cuDevicePrimaryCtxRetain(ContextHandle** context, DeviceNumber device) {
  ENTER(cuDevicePrimaryCtxRetain);
  *context = World::instance().context(device);
  return kSuccess;
}
FAKE_API int cuCtxPushCurrent_v2(ContextHandle* context) {
  ENTER(cuCtxPushCurrent);
  return t_contexts.push(context) ? kSuccess : kOutOfMemory;
}
FAKE_API int cuCtxPopCurrent_v2(ContextHandle** context) {
  ENTER(cuCtxPopCurrent);
  if (t_contexts.depth == 0) return kInvalidContext;
  *context = t_contexts.pop();
  return kSuccess;
}
FAKE_API int cuCtxGetCurrent(ContextHandle** context) {
  ENTER(cuCtxGetCurrent);
  *context = current();
  return kSuccess;
}
FAKE_API int cuCtxSetCurrent(ContextHandle* context) {
  ENTER(cuCtxSetCurrent);
  t_contexts.pop();
  if (context) t_contexts.push(context);
  return kSuccess;
}
FAKE_API int cuCtxGetDevice(DeviceNumber* device) {
  ENTER(cuCtxGetDevice);
  NEED_CONTEXT();
  *device = context->ordinal;
  return kSuccess;
}
FAKE_API int cuCtxEnablePeerAccess(ContextHandle* peer, unsigned) {
  ENTER(cuCtxEnablePeerAccess);
  NEED_CONTEXT();
  if (!World::instance().peers) return kPeerAccessUnsupported;
  const std::lock_guard guard(World::instance().mutex);
  return context->reaches.insert(peer->ordinal).second ? kSuccess : kPeerAccessAlreadyEnabled;
}

// ---- Memory

FAKE_API int cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  ENTER(cuMemAlloc);
  NEED_NO_CAPTURE();
  NEED_CONTEXT();
  uintptr_t address = 0;
  const int failed = World::instance().allocate(bytes, context->ordinal, &address);
  *pointer = address;
  return failed;
}
FAKE_API int cuMemFree_v2(DevicePointer pointer) {
  ENTER(cuMemFree);
  NEED_NO_CAPTURE();
  if (!current()) return kInvalidContext;
  World::instance().synchronize_for("cuMemFree");
  return World::instance().free(pointer, false);
}
FAKE_API int cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  ENTER(cuMemHostAlloc);
  NEED_NO_CAPTURE();
  NEED_CONTEXT();
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  World::instance().pin(*pointer, bytes, true);
  return kSuccess;
}
FAKE_API int cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
  ENTER(cuMemHostRegister);
  NEED_NO_CAPTURE();
  NEED_CONTEXT();
  uintptr_t base;
  Pinned pinned;
  if (World::instance().find_pinned(reinterpret_cast<uintptr_t>(pointer), &base, &pinned))
    return kHostMemoryAlreadyRegistered;
  World::instance().pin(pointer, bytes, false);
  return kSuccess;
}
FAKE_API int cuMemHostUnregister(void* pointer) {
  ENTER(cuMemHostUnregister);
  World::instance().synchronize_for("cuMemHostUnregister");
  return World::instance().unpin(pointer, false);
}
FAKE_API int cuMemHostGetDevicePointer_v2(DevicePointer* pointer, void* host, unsigned) {
  ENTER(cuMemHostGetDevicePointer);
  *pointer = reinterpret_cast<uintptr_t>(host);
  return kSuccess;
}
FAKE_API int cuPointerGetAttributes(unsigned count, int* attributes, void** data, DevicePointer pointer) {
  ENTER(cuPointerGetAttributes);
  if (!current()) return kInvalidContext;
  World& world = World::instance();
  const auto allocation = world.find(pointer);
  uintptr_t base = 0;
  Pinned pinned{};
  const bool is_pinned = !allocation && world.find_pinned(pointer, &base, &pinned);
  for (unsigned i = 0; i < count; ++i) {
    const auto set = [&](auto value) { std::memcpy(data[i], &value, sizeof value); };
    switch (attributes[i]) {
      case kMemoryType:
        set(allocation ? unsigned{kDeviceMemory} : is_pinned ? unsigned{kHostMemory} : 0u);
        break;
      case kBufferId:
        set(allocation ? (unsigned long long){allocation->id} : (unsigned long long){pinned.id});
        break;
      case kIsManaged: set(0); break;
      case kDeviceOrdinal: set(allocation ? allocation->ordinal : is_pinned ? 0 : -2); break;
      case kIsIpcCapable: set(allocation && world.ipc && !allocation->foreign ? 1 : 0); break;
      case kRangeStart: set(DevicePointer{allocation ? allocation->address : base}); break;
      case kRangeBytes: set(allocation ? allocation->bytes : pinned.bytes); break;
      default: return kInvalidValue;
    }
  }
  return kSuccess;
}
// Unlike its sibling, this one fails for what CUDA does not know, and needs no context.
FAKE_API int cuPointerGetAttribute(void* value, int attribute, DevicePointer pointer) {
  ENTER(cuPointerGetAttribute);
  if (attribute != kMemoryType) return kInvalidValue;
  uintptr_t base;
  Pinned pinned;
  const bool is_device = World::instance().find(pointer) != nullptr;
  if (!is_device && !World::instance().find_pinned(pointer, &base, &pinned)) return kInvalidValue;
  const unsigned type = is_device ? kDeviceMemory : kHostMemory;
  std::memcpy(value, &type, sizeof type);
  return kSuccess;
}
FAKE_API int cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes, StreamHandle* handle) {
  ENTER(cuMemcpyAsync);
  NEED_CONTEXT();
  World& world = World::instance();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  bool pageable = false;
  struct End {
    std::shared_ptr<Allocation> keep;
    std::byte* bytes;
  };
  const auto end_at = [&](DevicePointer address) -> End {
    if (auto allocation = world.find(address)) {
      const uint64_t offset = address - allocation->address;
      return {allocation, bytes > allocation->bytes - offset ? nullptr : allocation->backing + offset};
    }
    uintptr_t base;
    Pinned pinned;
    const bool is_pinned = world.find_pinned(address, &base, &pinned);
    if (!is_pinned && world.was_freed(address)) return {nullptr, nullptr};
    pageable |= !is_pinned;
    return {nullptr, reinterpret_cast<std::byte*>(address)};
  };
  const End target = end_at(to), source = end_at(from);
  if (!target.bytes || !source.bytes) return kInvalidValue;
  if (pageable)
    if (const int forbidden = forbidden_in_capture(stream)) return forbidden;
  const int failed = submit(stream, [=] {
    note_accesses("a copy", {{to, bytes, true}, {from, bytes, false}});
    std::memmove(target.bytes, source.bytes, bytes);
  });
  if (pageable && !failed) {
    (void)world.enter("pageable copy");
    stream->synchronize();
    host_waited_for(stream);
  }
  return failed;
}
FAKE_API int cuIpcGetMemHandle(IpcHandle* handle, DevicePointer pointer) {
  ENTER(cuIpcGetMemHandle);
  NEED_CONTEXT();
  const auto allocation = World::instance().find(pointer);
  if (!allocation || allocation->foreign || !World::instance().ipc) return kInvalidValue;
  const IpcContent content{
      kIpcMagic,           getpid(),      allocation->fd, allocation->bytes, allocation->ordinal,
      allocation->address, allocation->id};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &content, sizeof content);
  return kSuccess;
}
FAKE_API int cuIpcOpenMemHandle_v2(DevicePointer* pointer, IpcHandle handle, unsigned) {
  ENTER(cuIpcOpenMemHandle);
  NEED_CONTEXT();
  IpcContent content;
  std::memcpy(&content, &handle, sizeof content);
  if (content.magic != kIpcMagic) return kInvalidValue;
  if (content.pid == getpid()) return kInvalidContext;  // as CUDA: not in the process that made it
  if (content.ordinal != context->ordinal && !World::instance().peers) return kPeerAccessUnsupported;
  uintptr_t address = 0;
  const int failed = World::instance().import({content.pid, content.address, content.id}, content.fd,
                                              content.bytes, content.ordinal, &address);
  *pointer = address;
  return failed;
}
// As CUDA: whole pages of the host only. The file of a range that is not at an allocation's begin is left
// out.
FAKE_API int cuMemGetHandleForAddressRange(void* handle, DevicePointer pointer, size_t bytes, int type,
                                           unsigned long long flags) {
  ENTER(cuMemGetHandleForAddressRange);
  NEED_CONTEXT();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (pointer % page != 0 || bytes % page != 0 || bytes == 0 || type != kDmaBufHandle || flags != 0)
    return kInvalidValue;
  const auto allocation = World::instance().find(pointer);
  if (!allocation || allocation->foreign) return kInvalidValue;
  if (pointer != allocation->address || bytes >= allocation->bytes + page) return kNotSupported;
  const int fd = dup(allocation->fd);
  std::memcpy(handle, &fd, sizeof fd);
  return fd < 0 ? kOutOfMemory : kSuccess;
}
FAKE_API int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  ENTER(cuFlushGPUDirectRDMAWrites);
  NEED_CONTEXT();
  if (!World::instance().flushes) return kNotSupported;
  return target == kFlushCurrentContext && (scope == kFlushToOwner || scope == kFlushToAll) ? kSuccess
                                                                                            : kInvalidValue;
}
FAKE_API int cuIpcCloseMemHandle(DevicePointer pointer) {
  ENTER(cuIpcCloseMemHandle);
  World::instance().synchronize_for("cuIpcCloseMemHandle");
  return World::instance().free(pointer, true);
}

// ---- Streams and events

FAKE_API int cuStreamCreate(StreamHandle** stream, unsigned) {
  ENTER(cuStreamCreate);
  NEED_CONTEXT();
  *stream = World::instance().add_stream(context->ordinal);
  return kSuccess;
}
FAKE_API int cuStreamCreateWithPriority(StreamHandle** stream, unsigned flags, int priority) {
  return priority >= -5 && priority <= 0 ? cuStreamCreate(stream, flags) : kInvalidValue;
}
FAKE_API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  NEED_CONTEXT();
  *least = 0;
  *greatest = -5;
  return context ? kSuccess : kInvalidContext;
}
FAKE_API int cuStreamDestroy_v2(StreamHandle* stream) {
  ENTER(cuStreamDestroy);
  if (World::instance().knows(stream))
    if (const int forbidden = forbidden_in_capture(stream)) return forbidden;
  {
    const std::lock_guard guard(World::instance().mutex);
    if (World::instance().streams.erase(stream) == 0) return kInvalidHandle;
  }
  {
    const std::lock_guard guard(stream->mutex);
    stream->closing = true;
    stream->changed.notify_all();
  }
  if (stream->thread.joinable()) stream->thread.join();
  delete stream;
  return kSuccess;
}
FAKE_API int cuStreamSynchronize(StreamHandle* handle) {
  ENTER(cuStreamSynchronize);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  if (const int forbidden = forbidden_in_capture(stream)) return forbidden;
  stream->synchronize();
  host_waited_for(stream);
  return context->asynchronous_error.load();
}
FAKE_API int cuStreamGetCtx(StreamHandle* stream, ContextHandle** context) {
  ENTER(cuStreamGetCtx);
  if (ContextHandle* const own = current())
    if (const int error = own->asynchronous_error.load()) return error;
  if (reinterpret_cast<uintptr_t>(stream) <= 2) {
    *context = current();
    return *context ? kSuccess : kInvalidContext;
  }
  if (!World::instance().knows(stream)) return kInvalidHandle;
  *context = World::instance().context(stream->ordinal);
  return kSuccess;
}
FAKE_API int cuStreamWriteValue32_v2(StreamHandle* handle, DevicePointer address, uint32_t value, unsigned) {
  ENTER(cuStreamWriteValue32);
  NEED_CONTEXT();
  if (!World::instance().memops) return kNotSupported;
  StreamHandle* const stream = resolve(handle);
  uint32_t* const word = word_for_stream(address, context->ordinal);
  if (!stream || !word) return stream ? kInvalidValue : kInvalidHandle;
  if (!World::instance().graph_memops)
    if (const int forbidden = forbidden_in_capture(stream)) return forbidden;
  return submit(stream, write_to(word, value));
}
FAKE_API int cuStreamWaitValue32_v2(StreamHandle* handle, DevicePointer address, uint32_t value,
                                    unsigned flags) {
  ENTER(cuStreamWaitValue32);
  NEED_CONTEXT();
  if (!World::instance().memops) return kNotSupported;
  StreamHandle* const stream = resolve(handle);
  uint32_t* const word = word_for_stream(address, context->ordinal);
  if (!stream || !word) return stream ? kInvalidValue : kInvalidHandle;
  if (flags != kWaitValueGeq) return kNotSupported;
  if (!World::instance().graph_memops)
    if (const int forbidden = forbidden_in_capture(stream)) return forbidden;
  return submit(stream, wait_for(word, value));
}
FAKE_API int cuStreamBatchMemOp_v2(StreamHandle* handle, unsigned count, StreamOperation* operations,
                                   unsigned flags) {
  ENTER(cuStreamBatchMemOp);
  NEED_CONTEXT();
  World& world = World::instance();
  if (!world.memops) return kNotSupported;
  StreamHandle* const stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  if (count == 0 || count >= 256 || flags != 0) return kInvalidValue;
  std::vector<Piece> pieces;
  for (const StreamOperation* op = operations; op != operations + count; ++op) {
    uint32_t* const word = word_for_stream(op->address, context->ordinal);
    if (!word || op->alias != 0) return kInvalidValue;
    if (op->kind == kWriteValue32 && op->flags == kWriteValueDefault)
      pieces.push_back(write_to(word, op->value));
    else if (op->kind == kWaitValue32 && op->flags == kWaitValueGeq)
      pieces.push_back(wait_for(word, op->value));
    else return kNotSupported;
  }
  if (!world.graph_memops)
    if (const int forbidden = forbidden_in_capture(stream)) return forbidden;
  for (Piece& piece : pieces)
    if (const int failed = submit(stream, std::move(piece))) return failed;
  return kSuccess;
}
FAKE_API int cuEventCreate(EventHandle** event, unsigned) {
  ENTER(cuEventCreate);
  NEED_CONTEXT();
  *event = new EventHandle;
  (*event)->ordinal = context->ordinal;
  return kSuccess;
}
FAKE_API int cuEventRecord(EventHandle* event, StreamHandle* handle) {
  ENTER(cuEventRecord);
  NEED_CONTEXT();
  StreamHandle* const stream = resolve(handle);
  if (!stream || event->ordinal != stream->ordinal) return kInvalidHandle;
  return record(event, stream);
}
FAKE_API int cuEventQuery(EventHandle* event) {
  ENTER(cuEventQuery);
  NEED_NO_CAPTURE();
  if (is_captured(event)) return kCapturedEvent;
  if (const int error = World::instance().context(event->ordinal)->asynchronous_error.load()) return error;
  if (event->reached->load() == event->recorded.load()) {
    host_waited_for(event->reached.get(), event->recorded.load());
    return kSuccess;
  }
  ThreadCalls::mine().asked_in_vain();
  return kNotReady;
}
FAKE_API int cuEventDestroy_v2(EventHandle* event) {
  ENTER(cuEventDestroy);
  forget(event);
  delete event;
  return kSuccess;
}

// ---- Control

FAKE_API void fake_cuda_fail_after(const char* function, int calls, int error) {
  World::instance().fail_after(function, calls, error);
}
FAKE_API void fake_cuda_leave_out_wait(uint64_t number) { World::instance().until_left_out.store(number); }
FAKE_API void fake_cuda_break(int ordinal, int error) {
  World::instance().context(ordinal)->asynchronous_error.store(error);
}
FAKE_API void fake_cuda_hold_kernels(int held) { World::instance().kernels_held.store(held != 0); }
FAKE_API void fake_cuda_block(const char* function, int blocked) {
  World::instance().block(function, blocked != 0);
}
FAKE_API unsigned fake_cuda_largest_grid() { return World::instance().largest_grid.exchange(0); }
FAKE_API uint64_t fake_cuda_calls(const char* function) { return World::instance().calls(function); }
FAKE_API FakeCudaCalls fake_cuda_calls_of(int progress_threads) {
  if (progress_threads == 0) return ThreadCalls::mine().so_far();
  return ThreadCalls::of_threads("weft-progress");
}
FAKE_API int fake_cuda_file_behind(const void* device, uint64_t bytes, uint64_t* offset) {
  const auto address = reinterpret_cast<uintptr_t>(device);
  const auto allocation = World::instance().find(address);
  if (!allocation || bytes > allocation->bytes - (address - allocation->address)) return -1;
  *offset = address - allocation->address;
  return allocation->fd;
}
