// Throughput of a step in the two ways in which training systems report it.
//
// Thread safety: pure functions.
#pragma once

#include "program/job.h"

namespace loom::train {

/// 8 with activation checkpointing, 6 without, and between where some blocks only are recomputed.
inline double formula_factor(const program::Job& job) {
  int64_t recomputed = 0;
  for (int unit = 1; unit <= job.spec.layers; ++unit) recomputed += job.recomputes(unit) ? 1 : 0;
  return 6 + 2 * static_cast<double>(recomputed) / static_cast<double>(job.spec.layers);
}

/// Floating-point operations of a rank and second by the formula of AWS and the MiCS paper: f · samples/s ·
/// parameters · sequence length / ranks. f is formula_factor(), which counts recomputing as work. (Zhang et
/// al., "MiCS", 2022, after Narayanan et al., 2021, without attention's and the vocabulary's terms.)
inline double flops_by_formula(const program::Job& job, double parameters, double step_seconds) {
  return formula_factor(job) * job.tokens_per_step() / step_seconds * parameters / job.world;
}

/// Model FLOPs utilization (Chowdhery et al., "PaLM", 2022, appendix B): the operations of the model's
/// products a second, as a part of a rank's peak. They include attention and the head's rows with targets,
/// and exclude recomputing. 0 where the peak is not known.
inline double utilization(const program::Job& job, double step_seconds, double peak_flops) {
  if (peak_flops <= 0) return 0;
  return job.tokens_per_step() / step_seconds * job.flops_per_token() / job.world / peak_flops;
}

}  // namespace loom::train
