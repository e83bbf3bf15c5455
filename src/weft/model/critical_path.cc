// Walks back from the step that ended last, from each step to the one that made it ready. Time after `at` is
// accounted for. Each step takes the time between its start and `at`. So a put that let its lane go on before
// its data arrived takes only that part.
#include "model/critical_path.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::model {

using plan::Step;
using plan::StepId;
using plan::StepKind;

CriticalPath find_critical_path(std::span<const plan::Plan> plans, const topology::Layout& layout,
                                const std::vector<std::vector<StepTimes>>& steps) {
  CriticalPath path;
  int rank = -1;
  StepId id = kNoStep;
  double at = -1;
  for (size_t r = 0; r < steps.size(); ++r) {
    for (StepId s = 0; s < steps[r].size(); ++s) {
      if (steps[r][s].end_us > at) rank = static_cast<int>(r), id = s, at = steps[r][s].end_us;
    }
  }
  while (id != kNoStep) {
    const plan::Plan& plan = plans[static_cast<size_t>(rank) % plans.size()];
    const Step& step = plan.steps[id];
    const StepTimes& times = steps[rank][id];
    if (step.kind != StepKind::wait) {
      const double busy = at - times.start_us;
      const bool sends = plan::sends(step.kind);
      if (step.kind == StepKind::copy) path.copy_us += busy;
      else if (step.kind == StepKind::reduce) path.reduce_us += busy;
      else if (layout.same_node(plan.rank, step.peer)) path.intra_us += busy;
      else path.inter_us += busy;
      path.messages += sends;
      path.queued_us += times.start_us - times.ready_us;
      at = times.ready_us;
    }
    rank = times.cause_rank;
    id = times.cause_step;
  }
  path.queued_us += std::max(at, 0.0);  // the call itself
  return path;
}

std::string to_string(const CriticalPath& path) {
  const double total = path.intra_us + path.inter_us + path.copy_us + path.reduce_us + path.queued_us;
  return fmt::format(
      "{:.2f} µs over {} messages: {:.2f} between nodes, {:.2f} inside, {:.2f} copying, {:.2f} reducing, "
      "{:.2f} waiting "
      "for a CPU",
      total, path.messages, path.inter_us, path.intra_us, path.copy_us, path.reduce_us, path.queued_us);
}

}  // namespace weft::model
