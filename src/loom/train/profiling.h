// Profiling: rank 0 measures the model's units for all ranks, so that all divide the model alike.
//
// Thread safety: functions; one thread.
#pragma once

#include <weft/weft.h>

#include <string>
#include <vector>

#include "engine/profile.h"
#include "train/config.h"

namespace loom::train {

/// Measures the model's units, for dividing it: what `parallel.profile` asks for. A rank that may not have so
/// much by parallel.memory_limit_mb does not take it for measuring either. Errors: those of job_of() and
/// engine::profile_units().
Result<std::vector<engine::UnitProfile>> profile(const Config& config, const model::ModelSpec& spec,
                                                 int ranks, int threads);

struct SharedProfile {
  std::vector<engine::UnitProfile> units;  // empty: rank 0 could not measure them
  std::string failure;                     // why
};

/// What rank 0 has measured of so many units, or why it could not, on all ranks. A collective; `own` counts
/// on rank 0 only, and `world` may be nullptr (one rank). Errors: communication_error.
Result<SharedProfile> share_profile(const Result<std::vector<engine::UnitProfile>>& own, size_t units,
                                    weftComm_t world);

}  // namespace loom::train
