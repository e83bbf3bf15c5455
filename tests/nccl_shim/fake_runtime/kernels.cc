// Launching kernels: those that were added run on the CPU, in the order of their stream; any other is an
// error. Code that nvcc has compiled brings its own kernels along as machine code of a GPU, which is left
// alone.
#include "kernels.h"

#include <map>

#include "driver.h"

namespace fake_runtime {
namespace {

std::map<const void*, Bind>& kernels() {
  static std::map<const void*, Bind>& all = *new std::map<const void*, Bind>;
  return all;
}

void run_all_threads(const std::function<void()>& kernel, dim3 grid, dim3 block) {
  t_place.grid_size = grid;
  t_place.block_size = block;
  for (t_place.block = {}; t_place.block.x < grid.x; ++t_place.block.x)
    for (t_place.thread = {}; t_place.thread.x < block.x; ++t_place.thread.x) kernel();
}

}  // namespace

void add_kernel(const void* function, Bind bind) { kernels()[function] = std::move(bind); }

}  // namespace fake_runtime

using namespace fake_runtime;

extern "C" {

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t,
                             cudaStream_t stream) {
  const auto found = kernels().find(function);
  if (found == kernels().end() || grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1) {
    std::fprintf(stderr, "the fake CUDA runtime: a kernel was launched that the CPU does not know\n");
    return cudaErrorInvalidDeviceFunction;
  }
  return queue(stream,
               [kernel = found->second(arguments), grid, block] { run_all_threads(kernel, grid, block); });
}

// What nvcc's code calls for the kernels that it has compiled: to make them known, and where <<<…>>> stands.
void** __cudaRegisterFatBinary(void*) {
  static void* none = nullptr;
  return &none;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t bytes,
                               cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, bytes, stream);
}

}  // extern "C"
