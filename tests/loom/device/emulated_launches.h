// The emulator's kernels (cuda_kernels/emulator) as kernels of the fake driver.
#pragma once

#include "cuda/fake_driver/control.h"

namespace loom::testing {

/// Gives all kernels of the program to a fake driver by its fake_cuda_add_kernel. Threads of a block run in
/// the order of that seed. Once in a process.
void add_emulated_kernels_by(void (*add)(const FakeCudaKernel* kernel), unsigned seed);

}  // namespace loom::testing
