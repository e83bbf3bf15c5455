#include "model/lanes.h"

#include <algorithm>

namespace weft::model {

using plan::Plan;
using plan::StepId;

size_t Lanes::words_of(const Script& script) {
  const Plan& plan = *script.plan;
  return static_cast<size_t>(plan.lanes()) + plan.notifications() +
         (plan.has_dependents ? plan.steps.size() : 0);
}

Lanes::Lanes(const Script& script, std::span<uint32_t> memory)
    : script_(&script),
      plan_(script.plan),
      at_(memory.data()),
      waiting_(at_ + plan_->lanes()),
      missing_(waiting_ + plan_->notifications()) {}

void Lanes::restart() {
  std::copy(plan_->lane_begin.begin(), plan_->lane_begin.end() - 1, at_);
  std::fill_n(waiting_, plan_->notifications(), plan::kNoStep);
  if (!plan_->has_dependents) return;
  for (StepId id = 0; id < plan_->steps.size(); ++id) missing_[id] = plan_->steps[id].after_count;
}

}  // namespace weft::model
