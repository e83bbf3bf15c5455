// Kernels that a CPU runs for the fake CUDA runtime: functions of a program that g++ has compiled, one call
// for each thread of each block. Threads of a block run one after the other, so a kernel may not let them
// wait for each other.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fake_runtime {

/// What threadIdx, blockIdx, blockDim and gridDim are for the kernel that runs.
struct Place {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
inline thread_local Place t_place;

/// Where a CPU finds the bytes of an address: those behind device memory, else the address itself.
void* reachable(const void* address);

/// Of the arguments of a launch: the call that each thread makes.
using Bind = std::function<std::function<void()>(void** arguments)>;
void add_kernel(const void* function, Bind bind);

template <typename Argument>
Argument received(void* given) {
  const Argument value = *static_cast<std::remove_const_t<Argument>*>(given);
  if constexpr (std::is_pointer_v<Argument>) return static_cast<Argument>(reachable(value));
  else return value;
}

/// From now on, cudaLaunchKernel knows `kernel`.
template <typename... Parameters>
void add_kernel(void (*kernel)(Parameters...)) {
  const auto bind = [kernel]<size_t... places>(void** arguments, std::index_sequence<places...>) {
    return std::function<void()>([kernel, values = std::tuple<Parameters...>(received<Parameters>(
                                              arguments[places])...)] { std::apply(kernel, values); });
  };
  add_kernel(reinterpret_cast<const void*>(kernel),
             [bind](void** arguments) { return bind(arguments, std::index_sequence_for<Parameters...>()); });
}

}  // namespace fake_runtime
