// The CUDA driver's C interface, as far as Weft uses it: a table of functions that is filled at run time from
// libcuda.so.1. So one build serves machines with and without a driver, and needs no CUDA toolkit. Types and
// constants are the driver's, by value; a test compares them with cuda.h where there is one.
//
// Thread safety: every function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace weft::device::cuda {

// ---- The driver's types

using DeviceNumber = int;
using DevicePointer = unsigned long long;
struct ContextHandle;
struct StreamHandle;
struct EventHandle;
struct GraphHandle;
struct GraphNodeHandle;
struct UserObjectHandle;
struct ModuleHandle;
struct FunctionHandle;
struct IpcHandle {
  char bytes[64];
};
struct Uuid {
  char bytes[16];
};
/// A write of a 32-bit word by a stream, or a wait for one (CUstreamBatchMemOpParams).
struct StreamOperation {
  int kind = 0;  // kWaitValue32, kWriteValue32
  alignas(8) DevicePointer address = 0;
  alignas(8) uint32_t value = 0;
  alignas(8) unsigned flags = 0;
  DevicePointer alias = 0;
  uint64_t unused = 0;
};

enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kMapFailed = 205,
  kAlreadyMapped = 208,
  kNoBinaryForGpu = 209,
  kPeerAccessUnsupported = 217,
  kUnsupportedPtxVersion = 222,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureImplicit = 906,
};

enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kGpuDirectFlushOptions = 117,
  kGpuDirectWritesOrdering = 118,
};

enum PointerAttribute : int {
  kMemoryType = 2,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kIsIpcCapable = 10,
  kRangeStart = 11,
  kRangeBytes = 12,
};
enum MemoryType : unsigned { kNoMemoryType = 0, kHostMemory = 1, kDeviceMemory = 2 };

inline constexpr unsigned kHostAllocPortable = 1, kHostAllocMapped = 2;
inline constexpr unsigned kHostRegisterPortable = 1, kHostRegisterMapped = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr unsigned kWaitValueGeq = 0, kWriteValueDefault = 0;
inline constexpr int kWaitValue32 = 1, kWriteValue32 = 2;  // StreamOperation::kind
inline constexpr unsigned kMostStreamOperations = 255;     // of one call
inline constexpr int kEagerLoading = 1, kLazyLoading = 2;
inline constexpr int kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2;
inline constexpr int kCaptureModeGlobal = 0, kCaptureModeRelaxed = 2;
inline constexpr unsigned kUserObjectNoDestructorSync = 1, kUserObjectMove = 1;
// GPUDirect: kGpuDirectFlushOptions has kFlushByHost where flush_gpu_direct_writes works. The scopes are also
// the values of kGpuDirectWritesOrdering: a NIC's writes come before later reads of the scope without a
// flush.
inline constexpr int kFlushByHost = 1, kFlushCurrentContext = 0, kFlushToOwner = 100, kFlushToAll = 200;
inline constexpr int kDmaBufHandle = 1;

// ---- The table

/// The driver's functions without their prefix. A function that driver.cc binds as optional is null if this
/// driver does not have it.
struct Driver {
  void* library = nullptr;  // dlopen's
  int version = 0;          // 1000 × major + 10 × minor: the CUDA version that the driver is for

  int (*init)(unsigned flags);
  int (*driver_get_version)(int* version);
  int (*get_error_name)(int error, const char** name);
  int (*get_error_string)(int error, const char** text);

  int (*device_get_count)(int* count);
  int (*device_get)(DeviceNumber* device, int ordinal);
  int (*device_get_name)(char* name, int bytes, DeviceNumber device);
  int (*device_get_uuid)(Uuid* uuid, DeviceNumber device);
  int (*device_get_attribute)(int* value, int attribute, DeviceNumber device);
  int (*device_get_pci_bus_id)(char* text, int bytes, DeviceNumber device);
  int (*device_can_access_peer)(int* can, DeviceNumber device, DeviceNumber peer);

  int (*primary_context_retain)(ContextHandle** context, DeviceNumber device);
  int (*context_push)(ContextHandle* context);
  int (*context_pop)(ContextHandle** context);
  int (*context_get_current)(ContextHandle** context);
  int (*context_get_device)(DeviceNumber* device);
  int (*context_enable_peer_access)(ContextHandle* peer, unsigned flags);

  int (*mem_alloc)(DevicePointer* pointer, size_t bytes);
  int (*mem_free)(DevicePointer pointer);
  int (*mem_host_alloc)(void** pointer, size_t bytes, unsigned flags);
  int (*mem_host_register)(void* pointer, size_t bytes, unsigned flags);
  int (*mem_host_unregister)(void* pointer);
  int (*mem_host_get_device_pointer)(DevicePointer* pointer, void* host, unsigned flags);
  int (*pointer_get_attributes)(unsigned count, int* attributes, void** data, DevicePointer pointer);
  int (*memcpy_async)(DevicePointer to, DevicePointer from, size_t bytes, StreamHandle* stream);
  int (*ipc_get_mem_handle)(IpcHandle* handle, DevicePointer pointer);
  int (*ipc_open_mem_handle)(DevicePointer* pointer, IpcHandle handle, unsigned flags);
  int (*ipc_close_mem_handle)(DevicePointer pointer);
  int (*mem_get_handle_for_range)(void* handle, DevicePointer pointer, size_t bytes, int type,
                                  unsigned long long flags);
  int (*flush_gpu_direct_writes)(int target, int scope);

  int (*context_get_priority_range)(int* least, int* greatest);
  int (*stream_create)(StreamHandle** stream, unsigned flags);
  int (*stream_create_with_priority)(StreamHandle** stream, unsigned flags, int priority);
  int (*stream_destroy)(StreamHandle* stream);
  int (*stream_synchronize)(StreamHandle* stream);
  int (*stream_get_context)(StreamHandle* stream, ContextHandle** context);
  int (*stream_is_capturing)(StreamHandle* stream, int* status);
  int (*thread_exchange_capture_mode)(int* mode);
  int (*stream_begin_capture)(StreamHandle* stream, int mode);
  int (*stream_end_capture)(StreamHandle* stream, GraphHandle** graph);
  int (*stream_get_capture_info)(StreamHandle* stream, int* status, uint64_t* id, GraphHandle** graph,
                                 GraphNodeHandle* const** dependencies, size_t* dependency_count);
  int (*stream_wait_value)(StreamHandle* stream, DevicePointer address, uint32_t value, unsigned flags);
  int (*stream_write_value)(StreamHandle* stream, DevicePointer address, uint32_t value, unsigned flags);
  int (*stream_batch_mem_op)(StreamHandle* stream, unsigned count, StreamOperation* operations,
                             unsigned flags);
  int (*stream_wait_event)(StreamHandle* stream, EventHandle* event, unsigned flags);
  int (*launch_host_function)(StreamHandle* stream, void (*function)(void* data), void* data);
  int (*event_create)(EventHandle** event, unsigned flags);
  int (*event_record)(EventHandle* event, StreamHandle* stream);
  int (*event_query)(EventHandle* event);
  int (*event_destroy)(EventHandle* event);

  int (*graph_destroy)(GraphHandle* graph);
  int (*graph_retain_user_object)(GraphHandle* graph, UserObjectHandle* object, unsigned count,
                                  unsigned flags);
  int (*user_object_create)(UserObjectHandle** object, void* data, void (*destroy)(void* data),
                            unsigned references, unsigned flags);
  int (*user_object_release)(UserObjectHandle* object, unsigned count);

  int (*module_load_data)(ModuleHandle** module, const void* image);
  int (*module_get_loading_mode)(int* mode);
  int (*module_get_function)(FunctionHandle** function, ModuleHandle* module, const char* name);
  int (*launch_kernel)(FunctionHandle* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       StreamHandle* stream, void** parameters, void** extra);
};

/// The oldest driver that serves: it has every required function.
inline constexpr int kOldestDriver = 11020;

/// Loads and initializes the driver at the first call; WEFT_CUDA_LIBRARY says which library. Every later call
/// returns the result of the first, good or bad. Errors, each with a remedy: unsupported (no such library,
/// the toolkit's stub, too old, no device), unhandled_cuda_error.
Result<const Driver*> driver();

/// ok, or unhandled_cuda_error (out_of_memory) with the driver's name and words for `error`. `what` is the
/// call, as a user would look it up, or what it was for.
Status check(int error, std::string_view what);

}  // namespace weft::device::cuda
