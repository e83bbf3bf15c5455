// One forward, one backward.
#include <algorithm>

#include "program/schedule.h"

namespace loom::program {

std::vector<Pass> one_f_one_b_schedule(const Job& job, int stage) {
  int active = std::min(job.pipeline_degree - stage, job.microbatches);
  if (job.active_microbatches > 0) active = std::min(active, job.active_microbatches);
  std::vector<Pass> passes;
  for (int m = 0; m < active - 1; ++m) passes.push_back({true, stage, m});
  for (int m = 0; m < job.microbatches; ++m) {
    const int next = m + active - 1;
    if (next < job.microbatches) passes.push_back({true, stage, next});
    passes.push_back({false, stage, m});
  }
  return passes;
}

}  // namespace loom::program
