// Runs CUDA kernels on a CPU, as primitives_host.h tells. Blocks run one after the other; the threads of a
// block are fibers, which run in an order that the seed gives.
//
// An error of a kernel ends the program with a sentence on stderr: tests of such errors are death tests.
//
// Thread safety: several threads of the program may run kernels at the same time.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "device/cuda/kernels/primitives.h"

namespace loom::cuda::emulated {

/// Seeds 0 to 3 have different orders: the warps one after the other as far as they come, the same from the
/// last one on, every warp one operation in turn, and at random. Later seeds are other random orders.
inline constexpr unsigned kOrders = 4;

/// Calls `body` in every thread of every block.
void run(const LaunchShape& shape, unsigned seed, const std::function<void()>& body);

/// Runs a kernel with these arguments, whose pointers must be the CPU's.
void run(const LaunchShape& shape, unsigned seed, const Kernel& kernel, const void* arguments);

/// The same on copies of what the arguments point to, each as long as the kernel says (Kernel::each_pointer),
/// so that the address sanitizer finds what is outside of it. Then the copies are copied back.
void run_on_copies(const LaunchShape& shape, unsigned seed, const Kernel& kernel, const void* arguments);

/// Null if the program has no kernel of that name.
const Kernel* find_kernel(std::string_view name);
std::vector<const Kernel*> all_kernels();

}  // namespace loom::cuda::emulated
