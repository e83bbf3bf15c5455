// The formulas that kernels share with the CPU's operators.
#pragma once

#ifndef LOOM_ISA
#define LOOM_ISA on_gpu  // the namespace that they take here
#endif

#include "ops/activations.h"
#include "ops/adamw_update.h"
#include "ops/normal_pair.h"
#include "ops/rotary_angle.h"

namespace loom::cuda {
namespace formulas = ops::LOOM_ISA;
}
