#include "engine/run/step_progress.h"

#include <algorithm>

namespace weft::engine {

using plan::Step;
using plan::StepId;
using plan::StepKind;
using transport::Completion;

void StepProgress::lay_out(const PlanTables& tables) {
  const plan::Plan& plan = tables.plan;
  laid_out_for = &tables;
  arrived.resize(plan.notifications());
  learned.resize(tables.handles);
  completions.resize(tables.puts);
  step_done.resize(plan.has_dependents ? plan.steps.size() : 0);
  lanes.resize(plan.lanes());
}

void StepProgress::reset_arrivals(const PlanTables& tables) {
  if (laid_out_for != &tables) lay_out(tables);
  std::fill(arrived.begin(), arrived.end(), uint8_t{0});
}

void StepProgress::reset_steps(const PlanTables& tables, uint64_t now) {
  const plan::Plan& plan = tables.plan;
  std::fill(learned.begin(), learned.end(), PeerBuffer{});
  std::fill(completions.begin(), completions.end(), Completion{});
  std::fill(step_done.begin(), step_done.end(), uint8_t{0});
  lanes_left = 0;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    lanes[lane] = {plan.lane_begin[lane], 0, now};
    lanes_left += plan.lane_begin[lane] != plan.lane_begin[lane + 1];
  }
  puts_open = 0;
  puts_started = 0;
}

void StepProgress::follow_fast_path(const PlanTables& tables) {
  const plan::Plan& plan = tables.plan;
  const uint32_t next = lanes[0].next;
  reset_steps(tables, 0);
  lanes[0].next = next;
  lanes_left = next != plan.lane_steps.size();
  for (uint32_t i = 0; i < next; ++i) {
    const StepId id = plan.lane_steps[i];
    const int32_t put = tables.put_of_step[id];
    if (put >= 0) {
      completions[put].done = true;
      ++puts_started;
    } else if (!step_done.empty()) {
      step_done[id] = 1;
    }
  }
  may_move = true;
}

bool StepProgress::reap_puts(const PlanTables& tables) {
  if (puts_open == 0) return false;
  uint32_t open = 0;
  for (const Completion& completion : completions) open += !completion.done;
  // Puts that have not been started are not done either; their lanes count them.
  open -= tables.puts - puts_started;
  const bool moved = open != puts_open;
  puts_open = open;
  return moved;
}

std::vector<int> StepProgress::awaited_peers(const PlanTables& tables) const {
  const plan::Plan& plan = tables.plan;
  std::vector<int> peers;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (uint32_t i = plan.lane_begin[lane]; puts_open > 0 && i < lanes[lane].next; ++i) {
      const StepId id = plan.lane_steps[i];
      const int32_t put = tables.put_of_step[id];
      if (put >= 0 && !completions[put].done) peers.push_back(plan.steps[id].peer);
    }
    if (lanes[lane].next == plan.lane_begin[lane + 1]) continue;
    const Step& step = plan.steps[plan.lane_steps[lanes[lane].next]];
    const bool waits = step.kind == StepKind::wait && !arrived[plan.wait_begin[step.peer] + step.tag];
    const bool stuck_sending = plan::sends(step.kind);
    if (waits || stuck_sending) peers.push_back(step.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool StepProgress::deals_with(int rank, const PlanTables& tables) const {
  const plan::Plan& plan = tables.plan;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    // A put of GPU memory may still wait for its copy when its lane has gone on.
    for (uint32_t i = plan.lane_begin[lane]; puts_open > 0 && i < lanes[lane].next; ++i) {
      const StepId id = plan.lane_steps[i];
      const int32_t put = tables.put_of_step[id];
      if (put >= 0 && !completions[put].done && plan.steps[id].peer == rank) return true;
    }
    for (uint32_t i = lanes[lane].next; i < plan.lane_begin[lane + 1]; ++i) {
      const Step& step = plan.steps[plan.lane_steps[i]];
      if (step.peer != rank) continue;
      if (plan::sends(step.kind)) return true;
      if (step.kind == StepKind::wait && !arrived[plan.wait_begin[rank] + step.tag]) return true;
    }
  }
  return false;
}

}  // namespace weft::engine
