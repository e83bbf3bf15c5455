// The kernels of reduce.cu as data of the library: the fat binary that nvcc has made, or nothing.
#include "device/cuda/kernels.h"

#if defined(WEFT_KERNEL_IMAGE)
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    "weft_kernel_image_begin:\n"
    ".incbin \"" WEFT_KERNEL_IMAGE
    "\"\n"
    "weft_kernel_image_end:\n"
    ".byte 0\n"
    ".previous\n");

extern "C" {
extern const std::byte weft_kernel_image_begin[] __attribute__((visibility("hidden")));
extern const std::byte weft_kernel_image_end[] __attribute__((visibility("hidden")));
}
#endif

namespace weft::device::cuda {

std::span<const std::byte> kernel_image() {
#if defined(WEFT_KERNEL_IMAGE)
  return {weft_kernel_image_begin, weft_kernel_image_end};
#else
  return {};
#endif
}

}  // namespace weft::device::cuda
