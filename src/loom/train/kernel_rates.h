// What a rank's threads reach in each kernel of a model, measured with the operators that a run computes
// with.
#pragma once

#include "base/workers.h"
#include "program/job.h"
#include "program/machine.h"

namespace loom::train {

/// Sets the rates of computing: `flops`, `memory_bandwidth` and `device`. Every kind of kernel is measured
/// alone, the median of a few calls: forward passes on data that a core's own caches do not hold, gradients,
/// sums and the optimizer on data that no cache holds. Products are measured in two sizes, which tell the
/// rate of their operations from that of their operands. The rates depend on the job's precision, activation,
/// shape of attention and dropout, and on no other size of the model.
///
/// A rank of one thread is measured in CPU time, which other programs and ranks on the same core do not
/// lengthen; of more threads the least time on the clock counts. Takes 34 MiB at most and gives them back.
/// Thread safety: as Workers.
void measure_kernels(Workers& workers, const program::Job& job, program::Machine& machine);

}  // namespace loom::train
