// The argument of a CUDA kernel: one struct by value, which lists its pointers with their lengths. So a
// launch can be checked before it runs, and the fake driver of the tests can replace device addresses, at
// which nothing is mapped, by those of the bytes behind them. Compiled by nvcc and by g++, as C++17.
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
#include <cstdint>
#include <type_traits>

namespace loom::cuda {

/// CUDA's limit for the arguments of a kernel.
constexpr size_t kMostArgumentBytes = 4096;

/// One pointer of an argument struct: where it points to, how far, and whether the kernel may write there.
struct ArgumentPointer {
  const void* address;
  int64_t bytes;
  bool written;
};

/// visit(ArgumentPointer) for each pointer that `arguments` lists; the address (const void*) that visit()
/// returns takes its place.
template <typename Arguments, typename Visit>
void for_each_pointer(Arguments& arguments, Visit&& visit) {
  arguments.pointers([&visit](auto*& pointer, int64_t elements) {
    using Element = std::remove_pointer_t<std::remove_reference_t<decltype(pointer)>>;
    const ArgumentPointer described{pointer, elements * static_cast<int64_t>(sizeof(Element)),
                                    !std::is_const_v<Element>};
    pointer = static_cast<Element*>(const_cast<void*>(visit(described)));
  });
}

}  // namespace loom::cuda
