// Element types of training as kernels' names have them.
#pragma once

#include "base/fp16.h"

/// for_type(name, T) for every element type.
#define LOOM_EACH_TYPE(for_type) \
  for_type(fp32, float) for_type(bf16, ::loom::bf16) for_type(fp16, ::loom::fp16)

namespace loom::cuda {

template <typename T>
inline constexpr const char* kKernelType = nullptr;
#define LOOM_NAME_TYPE(name, T) \
  template <>                   \
  inline constexpr const char* kKernelType<T> = #name;
LOOM_EACH_TYPE(LOOM_NAME_TYPE)
#undef LOOM_NAME_TYPE

}  // namespace loom::cuda
