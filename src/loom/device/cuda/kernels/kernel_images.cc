#include "device/cuda/kernels/kernel_images.h"

// carried.h has LOOM_CARRY(name, "path of its fat binary") for each file that nvcc has compiled.
#define LOOM_CARRY(name, file)                                                              \
  __asm__(                                                                                  \
      ".section .rodata\n"                                                                  \
      ".balign 64\n"                                                                        \
      "loom_" #name                                                                         \
      "_image_begin:\n"                                                                     \
      ".incbin \"" file                                                                     \
      "\"\n"                                                                                \
      "loom_" #name                                                                         \
      "_image_end:\n"                                                                       \
      ".byte 0\n"                                                                           \
      ".previous\n");                                                                       \
  extern "C" {                                                                              \
  extern const std::byte loom_##name##_image_begin[] __attribute__((visibility("hidden"))); \
  extern const std::byte loom_##name##_image_end[] __attribute__((visibility("hidden")));   \
  }
#include "carried.h"
#undef LOOM_CARRY

namespace loom::cuda {

std::span<const KernelImage> kernel_images() {
#define LOOM_CARRY(name, file) {#name, {loom_##name##_image_begin, loom_##name##_image_end}},
  static const KernelImage kImages[] = {
#include "carried.h"
      {}};
  return std::span(kImages).first(std::size(kImages) - 1);
}

}  // namespace loom::cuda
