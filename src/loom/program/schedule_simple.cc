// All forward, then all backward, in rounds of as many microbatches as may be active.
#include <algorithm>

#include "program/schedule.h"

namespace loom::program {

std::vector<Pass> simple_schedule(const Job& job, int stage) {
  const int round = job.active_microbatches > 0 ? job.active_microbatches : job.microbatches;
  std::vector<Pass> passes;
  for (int first = 0; first < job.microbatches; first += round) {
    const int last = std::min(first + round, job.microbatches);
    for (const bool forward : {true, false})
      for (int m = first; m < last; ++m) passes.push_back({forward, stage, m});
  }
  return passes;
}

}  // namespace loom::program
