// Measures what a CPU of this host does with memory: the copies and reductions that the cost model charges
// for. Pure host work; links between ranks are measured by job/probe.h, which can send over them.
//
// Thread safety: every function. Several ranks may measure at once, and should where they will work at once:
// then the rates are what each gets beside the others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/cost.h"

namespace weft::model {

/// `stated` with the measured rates of copies and reductions (float, sum of two sources), and how much a
/// cache holds of them, which takes some 50 ms and 48 MiB. A rate that is not plausible (see plausible())
/// stays as it was.
Memory measure_memory(const Memory& stated);

/// `measured` if it lies within a factor of `most` of `stated`, else `stated`: a clock that jumped or a
/// paused process must not bend the model.
double plausible(double measured, double stated, double most = 30);

double median(std::vector<double> values);

/// A latency that was measured in several rows, and why not to believe it ("" = nothing speaks against it).
struct Latency {
  double us = 0;
  std::string doubt;
};

/// The latency from series of round trips in which both ranks spun, and others in which both slept. A rank
/// that loses its core is slow, and none is ever too fast. So the quickest series counts, by its median. The
/// latency is doubtful if only one of several series took about so long. It is doubtful, too, if the sleeping
/// ranks, which pay two wake-ups, were far quicker: then the ranks shared a core. With `one_core` for both
/// that is expected.
Latency agree(std::span<const std::vector<double>> spun, std::span<const std::vector<double>> slept,
              bool one_core);

}  // namespace weft::model
