// The emulator's kernels (cuda_kernels/emulator) on the fake driver, by their names.
#pragma once

namespace loom::testing {

/// Adds all kernels of the program to the fake driver. Threads of a block run in the order of that seed.
void add_emulated_kernels(unsigned seed = 0);

}  // namespace loom::testing
