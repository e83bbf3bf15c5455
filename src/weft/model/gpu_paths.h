// Prices of the paths on which a collective of GPU memory goes as a whole on the caller's stream: as one
// kernel, or as copies (plan/staged_copies.h). The simulator prices what goes step by step (estimate.h).
//
// The prices are formulas over the machine's measured rates, and constants that nobody has measured on a GPU:
// kKernelUs, kKernelFlagUs, kProxyUs, kBlockBytesPerUs and kFlagUs.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "model/cost.h"
#include "plan/plan.h"

namespace weft::model {

/// From the launch of kernels that wait for each other to the end of the shortest exchange. NCCL's model of
/// Hopper has 4.5 for its own.
inline constexpr double kKernelUs = 8;
/// What one more exchange inside a kernel takes.
inline constexpr double kKernelFlagUs = 2;
/// What a message between nodes takes beside its way: from a kernel's flag until the progress thread sees it,
/// and from the thread's flag until the other kernel does.
inline constexpr double kProxyUs = 4;
/// What one block of a kernel moves or reduces. NCCL's model of Hopper has 44 to 65 GB/s.
inline constexpr double kBlockBytesPerUs = 44e3;
/// The longest message that a kernel moves through exposed buffers. Copy engines take no multiprocessor from
/// a program, so they move what is longer. A reduction needs multiprocessors anyway.
inline constexpr uint64_t kMostMovedByKernel = 4 << 20;
/// From the end of a copy until a stream that waits for a flag behind it goes on.
inline constexpr double kFlagUs = 4;
/// From which message size on copies are used where nothing was measured.
inline constexpr uint64_t kCopiesUnmeasured = 4 << 20;

/// What one_hop in one kernel takes between ranks of one node: every rank stores its data at all others, who
/// load it from there.
double plan_kernel_us(const Machine& machine, const plan::Request& request, int ranks);
/// What `direct` in one kernel takes, with so many blocks in a lane: every rank reads and writes exposed
/// buffers of the others.
double exposed_kernel_us(const Machine& machine, const plan::Request& request, int ranks, uint32_t blocks);
/// The time of a plan of several nodes as one kernel with a proxy, by the estimate of step-by-step plans
/// (estimate.h). The kernel does its steps at once. Steps between nodes wait for the proxy's flags.
Result<double> proxy_kernel_us(const Machine& machine, const plan::Algorithm& algorithm,
                               const plan::Request& request, const topology::Layout& layout,
                               const plan::Limits& limits);
/// Whether a kernel through exposed buffers is for a request at all: it reduces on a machine that was
/// measured, or moves no more than kMostMovedByKernel. Errors: unsupported, with the reason.
Status exposed_kernel_fits(const plan::Request& request, int ranks, bool measured);
/// ok if a kernel is predicted to be faster than `steps_us`; where that is null, nothing was measured, and a
/// kernel is taken to be.
Status plan_kernel_pays(double predicted_us, const std::function<double()>& steps_us);

/// What staged copies take: for every round two waits for flags, and the begins of the busiest rank's copies;
/// and its bytes, one copy after the other. Copies of ranks that share a device take turns.
double staged_copies_us(const Machine& machine, const plan::Request& request, int ranks,
                        uint64_t staging_bytes);
/// Whether staged copies do a request that fits: from `from_bytes` on if that is not 0, else where they are
/// predicted to be faster than `steps_us`, or from kCopiesUnmeasured on where that is null. Errors:
/// unsupported, with the reason.
Status staged_copies_pay(const plan::Request& request, int ranks, uint64_t from_bytes, double predicted_us,
                         const std::function<double()>& steps_us);

}  // namespace weft::model
