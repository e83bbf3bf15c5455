// Profile: how long each unit of a model takes on this machine, measured one unit at a time, so that a model
// that fits nowhere as a whole can be measured as well.
//
// Thread safety: pure but for the time.
#pragma once

#include <vector>

#include "program/job.h"

namespace loom::engine {

/// µs of one microbatch forward and backward through each unit, the best of `repeats` after one that does not
/// count; with activation checkpointing blocks compute forward twice. Blocks are alike, so one is measured
/// for all. Errors: invalid_argument (the job or the number of repeats).
Result<std::vector<double>> profile_units(const program::Job& job, int threads, int repeats = 3);

}  // namespace loom::engine
