// StepRecord: when each step ran and because of what, where that is asked for (SimulateOptions::keep_steps);
// else it keeps nothing.
//
// Thread safety: none; one simulation's.
#pragma once

#include <utility>
#include <vector>

#include "model/ranks.h"
#include "model/simulate.h"

namespace weft::model {

class StepRecord {
 public:
  StepRecord(bool keeps, const Ranks& ranks) : keeps_(keeps) {
    if (!keeps) return;
    for (const RankState& rank : ranks.all()) times_.emplace_back(rank.plan().steps.size());
  }

  /// All that it waited for has happened, its rank's step `cause` last; kNoStep: nothing.
  void ready(const RankState& rank, plan::StepId id, double now, plan::StepId cause) {
    if (keeps_) times_of(rank, id) = {now, now, now, cause == kNoStep ? -1 : rank.rank, cause};
  }
  void start(const RankState& rank, plan::StepId id, double now) {
    if (keeps_) times_of(rank, id).start_us = now;
  }
  /// The step that ended a wait.
  void cause(const RankState& rank, plan::StepId wait, const Event& message) {
    if (!keeps_) return;
    times_of(rank, wait).cause_rank = message.rank;
    times_of(rank, wait).cause_step = message.step;
  }
  void end(const RankState& rank, plan::StepId id, double now) {
    if (keeps_) times_of(rank, id).end_us = now;
  }

  /// By rank and step, empty if it keeps nothing. Ends the record.
  std::vector<std::vector<StepTimes>> take() { return std::move(times_); }

 private:
  StepTimes& times_of(const RankState& rank, plan::StepId id) { return times_[rank.worker][id]; }

  const bool keeps_;
  std::vector<std::vector<StepTimes>> times_;
};

}  // namespace weft::model
