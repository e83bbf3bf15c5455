// Profile: how long each unit of a model takes on this machine, and what it leaves for backward, measured one
// unit at a time, so that a model that fits nowhere as a whole can be measured as well.
//
// Thread safety: pure but for the time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "program/job.h"
#include "program/partition.h"

namespace loom::engine {

/// Of one unit and microbatch, by one rank that has the whole unit.
struct UnitProfile {
  double kind = 0;           // units of one kind compute the same, and were measured once
  double time_us = 0;        // forward and backward
  double saved_bytes = 0;    // that forward wrote for backward, its output included
  double planned_bytes = 0;  // that the plan sets aside for them
};

/// The best time of `repeats` after one that does not count; with activation checkpointing blocks compute
/// forward twice. Blocks that compute the same, in width and window, are measured once for all. What a block
/// saves is counted in lines of 64 bytes that it wrote to. Errors: invalid_argument (the job or the number of
/// repeats); out_of_memory (there is not enough for one unit of the model).
Result<std::vector<UnitProfile>> profile_units(const program::Job& job, int threads, int repeats = 3);

/// For the simulator.
std::vector<double> times_of(std::span<const UnitProfile> units);
/// For the partition.
program::MeasuredUnits measures_of(std::span<const UnitProfile> units);

/// A line for units that follow each other and have the same profile, with time and bytes.
std::string to_string(const program::Job& job, std::span<const UnitProfile> units);

}  // namespace loom::engine
