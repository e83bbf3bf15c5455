// Arithmetic on device memory: launching the kernels of reduce.cu. The bits are those of device/reduce.h.
//
// Thread safety: a Kernels may be used by several threads, each inside a Scope of its device.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"
#include "device/cuda/queue.h"
#include "device/reduce.h"

namespace weft::device::cuda {

/// The fat binary of the kernels; empty in a build without nvcc.
std::span<const std::byte> kernel_image();

/// "float32": how kernels of a type are named.
const char* kernel_suffix(DataType type);

class Kernels {
 public:
  /// `blocks` is the largest grid. Errors: unsupported if this build has no kernels, or none for the device.
  static Result<std::unique_ptr<Kernels>> load(Device& device, int blocks);

  /// Whether one launch can take so many sources; the CPU reduces more.
  static bool takes(int sources);
  /// Queues dst[i] = op(sources[0][i], …): as device::reduce. Everything is memory that the device reaches.
  Status reduce(Queue& queue, const Reduction& reduction, void* dst, const void* const* sources, int n,
                size_t count) const;
  /// Queues dst[i] = src[i] × *scalar; the scalar is read before it returns.
  Status scale(Queue& queue, DataType type, void* dst, const void* src, size_t count,
               const void* scalar) const;

 private:
  explicit Kernels(int blocks) : blocks_(blocks) {}
  Status launch(Queue& queue, FunctionHandle* kernel, size_t count, size_t element_bytes,
                void* arguments) const;

  int blocks_;
  std::array<FunctionHandle*, kDataTypes> reduce_{}, mean_{}, scale_{};  // mean_: of floats only
};

}  // namespace weft::device::cuda
