// One forward, one backward.
//
// Usually stage s begins P - s microbatches before its first backward pass, one more than the stage after
// it. Then both transfers, there and back, must cross while the two stages have nothing else to do. So each
// transfer lengthens the step. With a difference of D between two stages, D - 1 rounds of a forward and a
// backward pass can hide the transfers. So what active_microbatches allows beyond P is shared equally among
// the gaps between stages. The last stage, which waits for no derivatives, keeps to one. More microbatches
// on every stage would leave the differences, and the waiting, as they are. With 2P - 1 each difference is
// 2, as in eager 1F1B (Zhuang et al., "On Optimizing the Communication of Model Parallelism", 2023).
#include <algorithm>

#include "program/schedule.h"

namespace loom::program {
namespace {

/// Microbatches that a stage has begun when its first backward pass begins.
int begun(const Job& job, int stage) {
  const int behind = job.pipeline_degree - 1 - stage;  // stages that are
  const int usual = behind + 1, most = std::min(job.active_microbatches, job.microbatches);
  if (most == 0) return std::min(usual, job.microbatches);
  if (most <= job.pipeline_degree || job.pipeline_degree == 1) return std::min(usual, most);
  const int gaps = job.pipeline_degree - 1;
  return 1 + static_cast<int>((int64_t{behind} * (most - 1) + gaps - 1) / gaps);
}

}  // namespace

std::vector<Pass> one_f_one_b_schedule(const Job& job, int stage) {
  const int active = begun(job, stage);
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
