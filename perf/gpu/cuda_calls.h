// Shared by the CUDA programs of this folder: calls that end the program with a sentence if they fail, and
// the driver's functions. These are looked up at run time, so linking needs no stub.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

[[noreturn]] inline void give_up(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::_Exit(1);  // work that is stuck in the driver stays there
}
inline void must(cudaError_t error) {
  if (error != cudaSuccess) give_up(cudaGetErrorString(error));
}
inline void must(CUresult error) {
  if (error != CUDA_SUCCESS) give_up("the driver says error " + std::to_string(error));
}
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A function of the driver, by the name that cuda.h gives it.
template <typename Function>
Function of_driver(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) give_up(dlerror());
  void* const function = dlsym(driver, name);
  if (!function) give_up(std::string("the driver has no ") + name);
  return reinterpret_cast<Function>(function);
}
#define WEFT_NAME_OF(function) #function
#define WEFT_OF_DRIVER(function) of_driver<decltype(&function)>(WEFT_NAME_OF(function))
