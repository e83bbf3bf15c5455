// The job of a run on GPUs: planned for the memory that a rank may take of its GPU, and what to change where
// that is too little.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace loom::train {

/// The job, on devices of which a rank may take `memory_bytes` for its arena. Errors: those of job_of();
/// out_of_memory says what would fit.
Result<program::Job> job_on_gpus(const Config& config, const model::ModelSpec& spec, int ranks,
                                 const program::MeasuredUnits& measured, int64_t memory_bytes);

}  // namespace loom::train
