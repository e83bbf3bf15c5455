// Script: a plan, with what its execution needs: which steps wait for which, and how much the plan hands
// over. Several ranks may play one script (symmetry.h).
#pragma once

#include <vector>

#include "model/handed_over.h"
#include "plan/plan.h"

namespace weft::model {

struct Script {
  const plan::Plan* plan = nullptr;
  // For every step, the steps that name it in `after`: dependents[begin[s]] … dependents[begin[s + 1] - 1].
  // Empty if there are none.
  std::vector<uint32_t> begin;
  std::vector<plan::StepId> dependents;

  HandedOver handed_over;

  Script(const plan::Plan& p, const topology::Layout& layout)
      : plan(&p), handed_over(model::handed_over(p, layout)) {
    if (!p.has_dependents) return;
    begin.resize(p.steps.size() + 1, 0);
    for (const plan::Step& step : p.steps) {
      for (const plan::StepId before : p.after(step)) ++begin[before + 1];
    }
    for (size_t i = 0; i < p.steps.size(); ++i) begin[i + 1] += begin[i];
    dependents.resize(begin.back());
    std::vector<uint32_t> cursor(begin.begin(), begin.end() - 1);
    for (plan::StepId id = 0; id < p.steps.size(); ++id) {
      for (const plan::StepId before : p.after(p.steps[id])) dependents[cursor[before]++] = id;
    }
  }
};

}  // namespace weft::model
