// Lanes: how far one rank has got in its plan's lanes in the call that it is in, what keeps steps from
// starting, and which notifications are there. It knows no time: the simulator asks it what comes next.
//
// Invariant: a lane's head moves only in pass(), and goes back only in restart().
//
// Thread safety: none; one simulation's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "model/script.h"
#include "plan/plan.h"

namespace weft::model {

class Lanes {
 public:
  /// `memory` is for what it knows: words_of(script) words or more, all 0. Both must live as long. Before
  /// restart() nothing may be asked but head() and missing().
  Lanes(const Script& script, std::span<uint32_t> memory);
  static size_t words_of(const Script& script);

  const Script& script() const { return *script_; }
  const plan::Plan& plan() const { return *plan_; }

  /// Goes back to before the first steps: a call begins.
  void restart();

  /// The step that a lane stands before, or has started last; kNoStep: it is through.
  plan::StepId head(int lane) const {
    const uint32_t at = at_[lane];
    return at < plan_->lane_begin[lane + 1] ? plan_->lane_steps[at] : plan::kNoStep;
  }
  /// The lane goes on past its head.
  void pass(int lane) { ++at_[lane]; }
  /// How many of the steps that `id` names in `after` are not done.
  uint32_t missing(plan::StepId id) const { return plan_->has_dependents ? missing_[id] : 0; }

  /// Whether the notification of a wait at the head of its lane is there. If not, arrive() names the wait.
  bool await(plan::StepId id) {
    const plan::Step& wait = plan_->steps[id];
    plan::StepId& waiting = waiting_[plan_->wait_begin[wait.peer] + wait.tag];
    if (waiting == kArrived) return true;
    waiting = id;
    return false;
  }
  /// Whether the plan waits for such a notification at all.
  bool expects(int from, uint32_t tag) const { return tag < plan_->notifications_from(from); }
  /// The notification is there. The wait whose lane stands before it; kNoStep: that comes later.
  plan::StepId arrive(int from, uint32_t tag) {
    const plan::StepId wait = std::exchange(waiting_[plan_->wait_begin[from] + tag], kArrived);
    return wait == kArrived ? plan::kNoStep : wait;
  }

  /// `id` is done. Calls freed(lane) for each lane whose head now misses nothing more because of that. Must
  /// come before the own lane passes `id`.
  template <class Freed>
  void finish(plan::StepId id, Freed&& freed) {
    if (!plan_->has_dependents) return;
    for (uint32_t edge = script_->begin[id]; edge < script_->begin[id + 1]; ++edge) {
      const plan::StepId dependent = script_->dependents[edge];
      if (--missing_[dependent] > 0) continue;
      const int lane = plan_->steps[dependent].lane;
      if (head(lane) == dependent) freed(lane);
    }
  }

 private:
  static constexpr plan::StepId kArrived = plan::kNoStep - 1;

  const Script* script_;
  const plan::Plan* plan_;  // the script's
  uint32_t* at_;            // by lane: its head's place in Plan::lane_steps
  plan::StepId* waiting_;   // by notification: the wait that stands there, kArrived or kNoStep
  uint32_t* missing_;       // by step, if any names another in `after`
};

}  // namespace weft::model
