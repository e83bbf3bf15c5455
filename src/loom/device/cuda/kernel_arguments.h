// The argument of a CUDA kernel: one struct by value, which lists its pointers with their lengths. So a
// launch can be checked before it runs. The fake driver of the tests replaces device addresses, at which
// nothing is mapped, by those of the bytes behind them. Compiled by nvcc and by g++, as C++17.
//
//   struct AddArguments {
//     const float *a, *b;
//     float* sum;
//     int64_t count;
//     template <typename Visit>
//     void pointers(Visit&& visit) {
//       visit(a, count);
//       visit(b, count);
//       visit(sum, count);
//     }
//   };
//   extern "C" __global__ void loom_add(const __grid_constant__ AddArguments arguments);
//
// A kernel reads through pointers to const, and may read and write through the others. Lengths are elements.
// A pointer that may be null is listed with length 0 when it is.
#pragma once

#include <cstddef>

namespace loom::cuda {

/// CUDA's limit for the arguments of a kernel.
constexpr size_t kMostArgumentBytes = 4096;

}  // namespace loom::cuda
