#include "model/gpu_paths.h"

#include <algorithm>

#include "model/estimate.h"
#include "model/pins.h"
#include "model/tuner.h"
#include "plan/staged_copies.h"

namespace weft::model {
namespace {

/// What the busiest rank stages, copies for itself, and has copied from or to it, in bytes; and its copies in
/// a round.
struct Load {
  double staged = 0, own = 0, exchanged = 0, copies = 0;
};

Load load_of(const plan::Request& request, int ranks) {
  const auto bytes = static_cast<double>(request.bytes());
  const double others = ranks - 1;
  switch (request.collective) {
    case plan::Collective::all_gather: return {bytes, bytes, others * bytes, others + 2};
    case plan::Collective::all_to_all: return {others * bytes, bytes, others * bytes, others + 3};
    case plan::Collective::scatter: return {others * bytes, 0, others * bytes, 3};
    case plan::Collective::gather: return {bytes, 0, others * bytes, others + 1};
    default: return {bytes, 0, others * bytes, 2};  // a root copies its own while the others read
  }
}

}  // namespace

double plan_kernel_us(const Machine& machine, const plan::Request& request, int ranks) {
  const double stored = static_cast<double>(ranks - 1) * static_cast<double>(request.bytes());
  // As packets each byte takes two, and it is stored and loaded.
  return kKernelUs + 2 * stored * machine.device_ranks / std::max(machine.intra.bytes_per_us, 1.0);
}

double exposed_kernel_us(const Machine& machine, const plan::Request& request, int ranks, uint32_t blocks) {
  const auto bytes = static_cast<double>(message_bytes(request, ranks));
  const double others = ranks - 1, lane = blocks * kBlockBytesPerUs;
  const bool reduces = plan::reduces(request.collective);
  const bool has_reduced = request.collective != plan::Collective::reduce_scatter;  // and copies it
  const double reduced = reduces ? bytes : 0;
  const double copied = !reduces ? bytes : has_reduced ? bytes * others / ranks : 0;
  const double reducing = std::max(std::min(machine.memory.reduce_large, lane), 1.0);
  const double between = machine.intra.bytes_per_us / machine.device_ranks;
  const double copying = std::max(std::min(between, std::max(others, 1.0) * lane), 1.0);
  const int exchanges = reduces && has_reduced ? 3 : 2;
  return kKernelUs + (exchanges - 1) * kKernelFlagUs + reduced / reducing + copied / copying;
}

Result<double> proxy_kernel_us(const Machine& machine, const plan::Algorithm& algorithm,
                               const plan::Request& request, const topology::Layout& layout,
                               const plan::Limits& limits) {
  Machine kernel = machine;  // whose ranks are kernels: they use no engines, and no cores
  kernel.engines = 0;
  kernel.engine_us = kernel.engine_step_us = kernel.call_us = 0;
  kernel.thread_ranks = 1;
  kernel.cores = layout.ranks();
  kernel.intra.alpha_us = kKernelFlagUs;
  kernel.intra.overhead_us = kernel.intra.sending_us = kernel.intra.behind_us = 0;
  kernel.intra.bytes_per_us = std::max(machine.intra.bytes_per_us / machine.device_ranks, 1.0);
  kernel.inter.alpha_us += kProxyUs;
  const auto estimated = estimate(algorithm, request, layout, kernel, limits, Calls::alone);
  return estimated ? Result<double>(kKernelUs + estimated->us) : estimated.status();
}

Status exposed_kernel_fits(const plan::Request& request, int ranks, bool measured) {
  if (measured && plan::reduces(request.collective)) return {};
  const uint64_t bytes = message_bytes(request, ranks);
  if (bytes <= kMostMovedByKernel) return {};
  return fail(Code::unsupported, "a kernel {} messages of at most {}{}",
              plan::reduces(request.collective) ? "reduces" : "moves", bytes_text(kMostMovedByKernel),
              measured ? "" : " where nothing was measured");
}

Status plan_kernel_pays(double predicted_us, const std::function<double()>& steps_us) {
  if (!steps_us) return {};
  if (const double steps = steps_us(); steps > 0 && steps <= predicted_us)
    return fail(Code::unsupported, "step by step it is predicted to take {:.1f} µs, as one kernel {:.1f}",
                steps, predicted_us);
  return {};
}

double staged_copies_us(const Machine& machine, const plan::Request& request, int ranks,
                        uint64_t staging_bytes) {
  const Load load = load_of(request, ranks);
  const double inside = std::max(machine.memory.copy_large, 1.0);
  const double between = std::max(machine.intra.bytes_per_us, 1.0);
  const double bytes = (load.staged + load.own) / inside + load.exchanged / between;
  const auto rounds = static_cast<double>(plan::staged_rounds(request, ranks, staging_bytes));
  const double begins = load.copies * std::max(machine.engine_us - machine.engine_step_us, 0.0);
  return rounds * (2 * kFlagUs + begins) + bytes * machine.device_ranks;
}

Status staged_copies_pay(const plan::Request& request, int ranks, uint64_t from_bytes, double predicted_us,
                         const std::function<double()>& steps_us) {
  const uint64_t bytes = message_bytes(request, ranks);
  if (from_bytes == 0 && steps_us) {
    if (const double steps = steps_us(); steps > 0 && steps <= predicted_us)
      return fail(Code::unsupported, "step by step it is predicted to take {:.1f} µs, by copy engines {:.1f}",
                  steps, predicted_us);
    return {};
  }
  const uint64_t from = from_bytes > 0 ? from_bytes : kCopiesUnmeasured;
  if (bytes >= from) return {};
  return fail(Code::unsupported, "copy engines on the caller's stream do messages of {} and more{}",
              bytes_text(from), from_bytes > 0 ? " (WEFT_CUDA_COPY_FROM)" : "");
}

}  // namespace weft::model
