// The kernels: weft_reduce_<type>, weft_scale_<type> and, for floats, weft_mean_<type>. Their arithmetic is
// in reduce_range.h. nvcc compiles them into a fat binary, which the library carries as data
// (kernel_image.cc).
#include "device/cuda/reduce_range.h"

namespace weft::device::cuda {

constexpr int kThreads = 512;

// A macro, since a kernel that is looked up by name cannot be a template.
#define WEFT_KERNELS(name, Type)                                                   \
  extern "C" __global__ void __launch_bounds__(kThreads)                           \
      weft_reduce_##name(const __grid_constant__ ReduceArguments arguments) {      \
    reduce_range<Type>(arguments, uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, \
                       uint64_t{gridDim.x} * blockDim.x);                          \
  }                                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads)                           \
      weft_scale_##name(const __grid_constant__ ScaleArguments arguments) {        \
    scale_range<Type>(arguments, uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,  \
                      uint64_t{gridDim.x} * blockDim.x);                           \
  }

#define WEFT_MEAN_KERNEL(name, Type)                                             \
  extern "C" __global__ void __launch_bounds__(kThreads)                         \
      weft_mean_##name(const __grid_constant__ MeanArguments arguments) {        \
    mean_range<Type>(arguments, uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, \
                     uint64_t{gridDim.x} * blockDim.x);                          \
  }

WEFT_EACH_KERNEL_TYPE(WEFT_KERNELS)
WEFT_EACH_FLOAT_KERNEL_TYPE(WEFT_MEAN_KERNEL)

}  // namespace weft::device::cuda
