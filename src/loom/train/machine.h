// What the machine under a run can do, measured in a moment before it begins: what a forecast needs.
#pragma once

#include <string>

#include "engine/groups.h"
#include "program/job.h"
#include "program/simulate.h"

namespace loom::train {

/// Matrix products that this rank's threads reach, in floating-point operations per second: the best of a few
/// products of 1024 rows, 768 deep and wide, of elements of that precision. Thread safety: any thread.
double measured_peak(int threads, program::Precision precision);

/// Of a tier that is measured.
constexpr int64_t kTierBytes = 128 << 20;

/// Bytes per second that activations reach on their way to a file in `folder` ("": TMPDIR, or /var/tmp) and
/// back: `bytes` are stored and loaded, twice, and the better time counts. A file that the kernel keeps in
/// memory is as fast as that; one that is larger than free memory is not. Errors: those of Tier::create().
/// Thread safety: any thread.
Result<double> measured_tier_bandwidth(const std::string& folder, int64_t bytes);

/// Elements of fp32 that each of so many ranks gives to a gather that is measured: a mebibyte, and less where
/// all of them together would be more than 32 MiB on each rank.
int64_t gathered_to_measure(int ranks);

/// Where rates of computing are kept from run to run.
struct RateCache {
  std::string folder;      // "": nowhere
  bool remeasure = false;  // in place of what is there
  Status kept = {};        // afterwards: whether what was measured is there
};

/// Measures kernels of the job's precision (kernel_rates.h), and links as all ranks use them at once. Each
/// rank computes. Then each group gathers or reduces a few megabytes, and stages send one to and fro; the
/// result is the median of seven. A job that offloads has its tier measured, too.
///
/// Values that all ranks find in `cache`, if any, are not measured again. Links always are, because nothing
/// that a process can read distinguishes two networks. Links are those inside nodes or between them, by
/// where this rank's groups lie. A link that no group uses keeps its default. A call's own time is that of
/// an AllReduce of all ranks on a stream.
///
/// Takes 34 MiB at most and gives them back. It runs before a rank has its arena, so that the two are never
/// there at once. A collective. Errors: communication_error, and the tier's.
Result<program::Machine> measure_machine(const program::Job& job, const engine::Groups& groups, int threads,
                                         const std::string& tier_folder = "", RateCache* cache = nullptr);

}  // namespace loom::train
