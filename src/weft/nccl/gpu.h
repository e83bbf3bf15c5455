// The questions to the CUDA driver that decide which library serves a call: is there a GPU, is a pointer
// device memory, and when has a stream reached this point. It has no memory and no arithmetic.
//
// The driver's library is opened at run time. A process on a machine without one pays nothing: gpu() is null.
//
// It is separate from device/cuda/driver.h, which initializes CUDA and needs all of its functions.
// Communicators of host memory ask about pointers in programs that may not use CUDA at all. Such a program
// must get no CUDA context, and must not fail for want of functions that only communicators of GPU memory
// need.
//
// Thread safety: all functions.
#pragma once

#include "base/status.h"

namespace weft::nccl {

class Gpu {
 public:
  /// Devices that this process may use; 0 where the driver does not work.
  int devices() const;
  /// Memory that the CPU may not be able to read: device memory, managed memory too. Memory that the driver
  /// does not know is the host's.
  bool is_device_memory(const void* pointer) const;
  /// Number of the calling thread's current device. Errors: unhandled_cuda_error.
  Result<int> current_device() const;
  /// Waits for what is on a stream; null is the legacy default stream. Errors: unhandled_cuda_error.
  Status synchronize(void* stream) const;
  /// The calling thread's context, for another thread to work in; null where it has none.
  void* context() const;
  /// That of a device, which every library of the process shares; it stays. Errors: unhandled_cuda_error.
  Result<void*> primary_context(int device) const;
  void enter(void* context) const;
  /// What context() said before; also none.
  void restore(void* context) const;

 private:
  friend const Gpu* gpu();
  static const Gpu* open();
  Status check(int result, const char* what) const;

  int (*init_)(unsigned) = nullptr;
  int (*device_count_)(int*) = nullptr;
  int (*pointer_attribute_)(void*, int, unsigned long long) = nullptr;
  int (*current_device_)(int*) = nullptr;
  int (*synchronize_)(void*) = nullptr;
  int (*get_context_)(void**) = nullptr;
  int (*set_context_)(void*) = nullptr;
  int (*get_device_)(int*, int) = nullptr;
  int (*retain_primary_)(void**, int) = nullptr;
  int (*error_string_)(int, const char**) = nullptr;
};

/// The driver, opened at the first call but not initialized; null where there is none.
const Gpu* gpu();

}  // namespace weft::nccl
