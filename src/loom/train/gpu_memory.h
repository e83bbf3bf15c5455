// The job of a run on GPUs: planned for the memory that a rank may take of its GPU, and what to change where
// that is too little.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace loom::train {

/// A GPU's table of operators, with the fewest rows of the head at a time.
inline constexpr model::TableTraits kGpuTable{model::kHeadRows, true};

/// The job with more rows of the head at a time, since each piece of them reads and writes the gradient of
/// the head's matrix, which is 154 MB of GPT-2. All rows are one piece where their logits take at most an
/// eighth of `memory_bytes` and the arena fits, or else a half of them is, a quarter, and so on. In strict
/// order the job stays as it was, for pieces that memory decides on would change the order of sums. Errors:
/// those of make_programs().
Result<program::Job> with_more_head_rows(const program::Job& job, int64_t memory_bytes);

/// The job, on devices of which a rank may take `memory_bytes` for its arena. Errors: those of job_of();
/// out_of_memory says what would fit.
Result<program::Job> job_on_gpus(const Config& config, const model::ModelSpec& spec, int ranks,
                                 const program::MeasuredUnits& measured, int64_t memory_bytes);

}  // namespace loom::train
