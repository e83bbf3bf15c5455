// Which device a rank computes on. A job's ranks all compute on CPUs, or all on GPUs, for their sums differ
// in the last bits. A rank takes the GPU of its local rank; where a node has fewer, ranks share them.
//
// Thread safety: functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/cuda/kernels/kernel_images.h"
#include "device/cuda/product.h"

namespace loom::device {

/// The job's setting; `automatic` takes GPUs where every rank has one.
enum class Wanted { automatic, cpu, cuda };
/// "auto", "cpu" or "cuda"; another text is automatic.
Wanted wanted_from(std::string_view name);

/// The GPU that a rank has found, or why it has none.
struct FoundGpu {
  int ordinal = -1;         // -1: none
  std::string description;  // of the GPU
  std::string why_not;      // there is none, a sentence
  int64_t free_bytes = 0;   // of its memory, when it was found
  /// The same for processes of one machine that have found the same GPU, whatever number each gives to it.
  uint64_t identity = 0;
};

/// The GPU of a rank that is number `local_rank` on its node. Training there needs a driver, a GPU that has
/// the element type, cuBLASLt, and `images` that the GPU runs. With `cpu` it does not look, and loads no
/// driver.
FoundGpu look_for_gpu(Wanted wanted, int local_rank, cuda::ElementType type,
                      std::span<const cuda::KernelImage> images = cuda::kernel_images());

/// Whether the job computes on GPUs; found[rank] is what that rank has found. With `automatic`, CPUs unless
/// every rank has a GPU; `reason` says then what the first rank without one lacks. Errors (unsupported, the
/// same on all ranks): with `cuda`, a rank has no GPU.
Result<bool> computes_on_gpus(Wanted wanted, std::span<const FoundGpu> found, std::string& reason);

}  // namespace loom::device
