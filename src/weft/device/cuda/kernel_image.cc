// The kernels of reduce.cu and plan.cu as data of the library: the fat binaries that nvcc has made, or
// nothing.
#include "device/cuda/kernels.h"
#include "device/cuda/plan_kernels.h"

#if defined(WEFT_REDUCE_IMAGE)
#define WEFT_CARRY(name, file) \
  __asm__(                     \
      ".section .rodata\n"     \
      ".balign 64\n"           \
      "weft_" name             \
      "_image_begin:\n"        \
      ".incbin \"" file        \
      "\"\n"                   \
      "weft_" name             \
      "_image_end:\n"          \
      ".byte 0\n"              \
      ".previous\n")
WEFT_CARRY("reduce", WEFT_REDUCE_IMAGE);
WEFT_CARRY("plan", WEFT_PLAN_IMAGE);

extern "C" {
#define WEFT_HIDDEN __attribute__((visibility("hidden")))
extern const std::byte weft_reduce_image_begin[] WEFT_HIDDEN;
extern const std::byte weft_reduce_image_end[] WEFT_HIDDEN;
extern const std::byte weft_plan_image_begin[] WEFT_HIDDEN;
extern const std::byte weft_plan_image_end[] WEFT_HIDDEN;
}
#endif

namespace weft::device::cuda {

std::span<const std::byte> kernel_image() {
#if defined(WEFT_REDUCE_IMAGE)
  return {weft_reduce_image_begin, weft_reduce_image_end};
#else
  return {};
#endif
}

std::span<const std::byte> plan_kernel_image() {
#if defined(WEFT_REDUCE_IMAGE)
  return {weft_plan_image_begin, weft_plan_image_end};
#else
  return {};
#endif
}

}  // namespace weft::device::cuda
