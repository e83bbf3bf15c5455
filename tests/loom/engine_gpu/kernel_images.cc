// The images of this program in place of the library's: kernels are the emulator's, in builds without nvcc,
// too.
#include "device/cuda/kernels/kernel_images.h"

#include <cstdint>

namespace loom::cuda {

std::span<const KernelImage> kernel_images() {
  static constexpr uint32_t kFatBinary[] = {0xba55ed50, 0};  // all that the fake driver looks at
  static const KernelImage images[] = {{"emulated", std::as_bytes(std::span(kFatBinary))}};
  return images;
}

}  // namespace loom::cuda
