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

/// What rows of round trips say, in which both ranks spun, and others, in which both slept. Whoever loses its
/// core for a while is slow, and nobody is ever too fast, so the quickest row counts, by its median. It is
/// doubtful if it is the only one of several that took about so long; and if those who slept, which costs two
/// wake-ups, were far quicker than those who spun: then the ranks had to share a core, of which spinning
/// takes all. Where there is `one_core` for both anyway, that is as it has to be.
Latency agree(std::span<const std::vector<double>> spun, std::span<const std::vector<double>> slept,
              bool one_core);

}  // namespace weft::model
