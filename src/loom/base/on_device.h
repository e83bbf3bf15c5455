// LOOM_ON_DEVICE marks small functions of the CPU's that kernels of GPUs call, too.
#pragma once

#if defined(__CUDACC__)
#define LOOM_ON_DEVICE __host__ __device__
#else
#define LOOM_ON_DEVICE
#endif
