// Measures what a CPU of this host does with memory: the copies and reductions that the cost model charges
// for. Pure host work; links between ranks are measured by engine/probe.h, which can send over them.
//
// Thread safety: every function. Several ranks may measure at once, and should where they will work at once:
// then the rates are what each gets beside the others.
#pragma once

#include "model/cost.h"

namespace weft::model {

/// `stated` with the measured rates of copies and reductions (float, sum of two sources), which takes some
/// 50 ms and 48 MiB. A rate that is not plausible (see plausible()) stays as it was.
Memory measure_memory(const Memory& stated);

/// `measured` if it lies within a factor of `most` of `stated`, else `stated`: a clock that jumped or a
/// paused process must not bend the model.
double plausible(double measured, double stated, double most = 30);

}  // namespace weft::model
