// The kernels for AVX2 and F16C; CMakeLists.txt gives this file its flags.
#if defined(__AVX2__)
#include "device/kernel_loops.h"

namespace weft::device {

extern const Kernels avx2_kernels;
constinit const Kernels avx2_kernels = make_kernels("avx2");

}  // namespace weft::device
#endif
