// The kernels for AVX-512; CMakeLists.txt gives this file its flags.
#if defined(__AVX512F__)
#include "device/kernel_loops.h"

namespace weft::device {

extern const Kernels avx512_kernels;
constinit const Kernels avx512_kernels = make_kernels("avx512");

}  // namespace weft::device
#endif
