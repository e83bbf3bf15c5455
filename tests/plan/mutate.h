// Editing finished plans, to break them in tests of the verifier.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"

namespace weft::plan::testing {

/// Derives a plan's tables from its steps again, without touching tags: what a duplicate or a gap does must
/// show.
inline void derive_tables(Plan& plan) {
  int lanes = 0;
  std::vector<uint32_t> waits(static_cast<size_t>(plan.ranks), 0);
  for (const Step& step : plan.steps) {
    lanes = std::max(lanes, step.lane + 1);
    if (step.kind == StepKind::wait && step.peer >= 0 && step.peer < plan.ranks) {
      waits[step.peer] = std::max(waits[step.peer], step.tag + 1);
    }
  }
  plan.lane_begin.assign(1, 0);
  plan.lane_steps.clear();
  for (int lane = 0; lane < lanes; ++lane) {
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      if (plan.steps[id].lane == lane) plan.lane_steps.push_back(id);
    }
    plan.lane_begin.push_back(static_cast<uint32_t>(plan.lane_steps.size()));
  }
  plan.wait_begin.assign(1, 0);
  for (uint32_t count : waits) plan.wait_begin.push_back(plan.wait_begin.back() + count);
  plan.has_dependents = !plan.dependencies.empty();
}

/// Replaces what a step names in `after`.
inline void set_after(Plan& plan, StepId id, const std::vector<StepId>& after) {
  plan.steps[id].after = static_cast<uint32_t>(plan.dependencies.size());
  plan.steps[id].after_count = static_cast<uint32_t>(after.size());
  plan.dependencies.insert(plan.dependencies.end(), after.begin(), after.end());
}

/// Removes a step; whoever named it in `after` no longer does. Renumbers tags after a notification's if
/// `close_gap`.
inline void drop_step(Plan& plan, StepId dropped) {
  std::vector<std::vector<StepId>> after;
  for (const Step& step : plan.steps) {
    const auto named = plan.after(step);
    after.emplace_back(named.begin(), named.end());
  }
  plan.steps.erase(plan.steps.begin() + dropped);
  after.erase(after.begin() + dropped);
  plan.dependencies.clear();
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    std::erase(after[id], dropped);
    for (StepId& named : after[id]) named -= named > dropped;
    set_after(plan, id, after[id]);
  }
  derive_tables(plan);
}

inline bool sends(const Step& step) { return step.kind == StepKind::put || step.kind == StepKind::signal; }

/// Removes a notification at both ends, and closes the gap in the pair's tags. A put keeps its data: it loses
/// only its news, which is not something a plan can express, so this is for signals.
inline void drop_signal(std::vector<Plan>& plans, int rank, StepId id) {
  const Step signal = plans[rank].steps[id];
  Plan& receiver = plans[signal.peer];
  drop_step(plans[rank], id);
  for (Step& step : plans[rank].steps)
    step.tag -= sends(step) && step.peer == signal.peer && step.tag > signal.tag;
  for (StepId wait = 0; wait < receiver.steps.size(); ++wait) {
    const Step& step = receiver.steps[wait];
    if (step.kind != StepKind::wait || step.peer != rank || step.tag != signal.tag) continue;
    drop_step(receiver, wait);
    break;
  }
  for (Step& step : receiver.steps)
    step.tag -= step.kind == StepKind::wait && step.peer == rank && step.tag > signal.tag;
  derive_tables(plans[rank]);
  derive_tables(receiver);
}

/// The n-th step of a kind.
inline StepId find_step(const Plan& plan, StepKind kind, int n = 0) {
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    if (plan.steps[id].kind == kind && n-- == 0) return id;
  }
  return kNoStep;
}

}  // namespace weft::plan::testing
