// LOOM_EACH_TYPE(for_type): for_type(name in kernels' names, T) for every element type of training.
#pragma once

#include "base/fp16.h"

#define LOOM_EACH_TYPE(for_type) \
  for_type(fp32, float) for_type(bf16, ::loom::bf16) for_type(fp16, ::loom::fp16)
