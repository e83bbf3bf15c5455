// The CUDA driver's functions that Loom calls, as a table. Weft loads and initializes the driver
// (weft/weft_cuda.h); the table is filled from there. So one build serves machines with and without a GPU,
// and needs no CUDA toolkit. Constants are the driver's, by value; a test compares them with cuda.h where
// there is one.
//
// Thread safety: every function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace loom::cuda {

// ---- The driver's types

using DeviceNumber = int;
using DevicePointer = unsigned long long;
struct ContextHandle;
struct StreamHandle;
struct EventHandle;
struct ModuleHandle;
struct FunctionHandle;

enum Error : int {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoBinaryForGpu = 209,
  kUnsupportedPtxVersion = 222,
  kNotFound = 500
};

enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMostSharedBytesOfBlock = 97,  // with the consent of allow_shared_bytes
};
inline constexpr int kMaxDynamicSharedBytes = 8;  // of a function: its attribute
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0, kEventDisableTiming = 2;

// ---- The table

/// The driver's functions without their prefix.
struct Driver {
  int version = 0;  // 1000 × major + 10 × minor: the CUDA version that the driver is for

  int (*driver_get_version)(int* version);
  int (*get_error_name)(int error, const char** name);
  int (*get_error_string)(int error, const char** text);

  int (*device_get_count)(int* count);
  int (*device_get)(DeviceNumber* device, int ordinal);
  int (*device_get_name)(char* name, int bytes, DeviceNumber device);
  int (*device_get_attribute)(int* value, int attribute, DeviceNumber device);
  int (*primary_context_retain)(ContextHandle** context, DeviceNumber device);
  int (*primary_context_release)(DeviceNumber device);
  int (*context_get_current)(ContextHandle** context);
  int (*context_push)(ContextHandle* context);
  int (*context_pop)(ContextHandle** context);

  int (*mem_get_info)(size_t* free, size_t* all);
  int (*mem_alloc)(DevicePointer* pointer, size_t bytes);
  int (*mem_free)(DevicePointer pointer);
  int (*mem_host_alloc)(void** pointer, size_t bytes, unsigned flags);
  int (*mem_free_host)(void* pointer);
  int (*memcpy_async)(DevicePointer to, DevicePointer from, size_t bytes, StreamHandle* stream);
  int (*memset_async)(DevicePointer to, unsigned char value, size_t bytes, StreamHandle* stream);

  int (*stream_create)(StreamHandle** stream, unsigned flags);
  int (*stream_destroy)(StreamHandle* stream);
  int (*stream_synchronize)(StreamHandle* stream);
  int (*stream_wait_event)(StreamHandle* stream, EventHandle* event, unsigned flags);
  int (*event_create)(EventHandle** event, unsigned flags);
  int (*event_destroy)(EventHandle* event);
  int (*event_record)(EventHandle* event, StreamHandle* stream);
  int (*event_synchronize)(EventHandle* event);
  int (*event_elapsed_time)(float* milliseconds, EventHandle* begin, EventHandle* end);

  int (*module_load_data)(ModuleHandle** module, const void* image);
  int (*module_unload)(ModuleHandle* module);
  int (*module_get_function)(FunctionHandle** function, ModuleHandle* module, const char* name);
  int (*function_set_attribute)(FunctionHandle* function, int attribute, int value);
  int (*launch_kernel)(FunctionHandle* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       StreamHandle* stream, void** parameters, void** extra);
};

/// The table; the first call fills it, and every later call returns the result of the first. Errors, each
/// with a remedy: unsupported (no driver, one that lacks a function, no device).
Result<const Driver*> driver();

/// ok, or system_error (out_of_memory) with the driver's name and words for `error`. `what` says what it was
/// for.
Status check(int error, std::string_view what);

}  // namespace loom::cuda
