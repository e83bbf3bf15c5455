// The GPU kernels that the library carries: a fat binary for each .cu file of this folder.
//
// Thread safety: constant data.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace loom::cuda {

struct KernelImage {
  std::string_view name;  // of the file, without .cu
  std::span<const std::byte> bytes;
};

/// Empty where the library was built without nvcc.
std::span<const KernelImage> kernel_images();

}  // namespace loom::cuda
