// Profile: the measured time and memory of each unit of a model on this machine. Units are measured one at a
// time, so a model that fits nowhere as a whole can be measured, too.
//
// Memory is measured by painting it. Buffers as large as the plan's are filled with a pattern. Then the
// unit's forward, backward and update run on them. What still has the pattern was not used.
//
// Thread safety: pure but for the time.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "program/job.h"
#include "program/partition.h"

namespace loom::engine {

/// Bytes that were written, in lines of 64, of those that the plan sets aside.
struct Amount {
  double measured = 0;
  double planned = 0;
  double part() const { return planned > 0 ? measured / planned : 1; }
};

/// Of one unit and microbatch, by one rank that has the whole unit.
struct UnitProfile {
  double kind = 0;      // units of one kind compute the same, and were measured once
  double measured = 1;  // 0: it was not, for lack of time; time is the cost model's and memory as planned
  double time_us = 0;   // forward and backward
  Amount state;         // parameters, masters, moments and gradient: what backward and an update write
  Amount saved;         // what forward leaves for backward, its output included; of the head nothing
  Amount workspace;     // what forward and backward use besides
};

struct ProfileSettings {
  int repeats = 3;  // of each kind of unit, after one that does not count
  /// When that is over nothing begins any more. Others wait for what is measured, so it is far less than
  /// Weft lets them wait (WEFT_TIMEOUT_S, 600). A single pass that takes as long as that would end any
  /// pipeline, too.
  double seconds = 30;
  int64_t limit_bytes = 0;                // of memory; 0: what the machine has
  std::function<double()> clock_us = {};  // empty: the steady clock
};

/// Bytes that measuring takes while it measures the unit that needs most.
int64_t bytes_to_profile(const program::Job& job);

/// The best time of several. With activation checkpointing, blocks compute forward twice. Blocks with the
/// same computation, width and window are measured once for all. When the time is over, units that were not
/// measured get the cost model's times, scaled by those that were. Errors: invalid_argument (the job,
/// threads or repeats); out_of_memory (one unit of the model takes more than the limit, or than three
/// quarters of the machine's memory: the kernel does not refuse a process that takes more, but ends it).
Result<std::vector<UnitProfile>> profile_units(const program::Job& job, int threads,
                                               const ProfileSettings& settings = {});

/// For the simulator.
std::vector<double> times_of(std::span<const UnitProfile> units);
/// For the partition.
program::MeasuredUnits measures_of(std::span<const UnitProfile> units);

/// A sentence on what was not measured for lack of time; empty where all was.
std::string left_out(std::span<const UnitProfile> units);

/// A line for units that follow each other and have the same profile, with time and bytes.
std::string to_string(const program::Job& job, std::span<const UnitProfile> units);

}  // namespace loom::engine
