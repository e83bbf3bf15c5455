// Executes the plans of all ranks on real memory, in one thread: what the engine does, without transports. A
// put arrives at once; the verifier proves that the order does not matter.
#pragma once

#include <cstring>
#include <stdexcept>
#include <vector>

#include "device/reduce.h"
#include "plan/plan.h"
#include "plan/uneven.h"

namespace weft::plan::testing {

using Bytes = std::vector<char>;

class Execution {
 public:
  /// Out of place. `inputs` are those of all ranks.
  Execution(const std::vector<Plan>& plans, const std::vector<Bytes>& inputs, device::DataType type,
            device::ReduceOp op)
      : plans_(plans), type_(type), op_(op), ranks_(plans.size()) {
    for (size_t r = 0; r < plans.size(); ++r) {
      Rank& rank = ranks_[r];
      const Plan& plan = plans[r];
      rank.memory[static_cast<int>(Space::input)] = inputs[r];
      rank.memory[static_cast<int>(Space::output)].resize(
          output_bytes(plan.request, plan.ranks, static_cast<int>(r)));
      rank.memory[static_cast<int>(Space::scratch)].resize(plan.scratch_bytes);
      rank.done.resize(plan.steps.size());
      rank.arrived.resize(plan.notifications());
      rank.next.assign(plan.lane_begin.begin(), plan.lane_begin.end() - 1);
    }
  }

  /// The outputs of all ranks.
  std::vector<Bytes> run() {
    while (advance()) {
    }
    std::vector<Bytes> outputs;
    for (size_t r = 0; r < plans_.size(); ++r) {
      for (size_t step = 0; step < plans_[r].steps.size(); ++step)
        if (!ranks_[r].done[step]) throw std::logic_error("a plan is stuck:\n" + to_string(plans_[r]));
      outputs.push_back(std::move(ranks_[r].memory[static_cast<int>(Space::output)]));
    }
    return outputs;
  }

 private:
  struct Rank {
    Bytes memory[3];
    std::vector<bool> done, arrived;  // by step, by notification
    std::vector<uint32_t> next;       // by lane
  };

  /// Where a region is that rank `by` names.
  char* at(int by, const Region& region) {
    Rank& owner = ranks_[static_cast<size_t>(region.rank)];
    const uint64_t begin =
        by == region.rank
            ? 0
            : shared_block(plans_[static_cast<size_t>(region.rank)].request, region.space, by).begin;
    return owner.memory[static_cast<int>(region.space)].data() + begin + region.offset;
  }

  bool advance() {
    bool moved = false;
    for (size_t r = 0; r < plans_.size(); ++r) {
      for (int lane = 0; lane < plans_[r].lanes(); ++lane) {
        uint32_t& next = ranks_[r].next[static_cast<size_t>(lane)];
        for (; next < plans_[r].lane_begin[lane + 1]; ++next, moved = true) {
          const StepId id = plans_[r].lane_steps[next];
          if (!carry_out(r, plans_[r].steps[id])) break;
          ranks_[r].done[id] = true;
        }
      }
    }
    return moved;
  }

  bool carry_out(size_t r, const Step& step) {
    const Plan& plan = plans_[r];
    for (StepId id : plan.after(step))
      if (!ranks_[r].done[id]) return false;
    switch (step.kind) {
      case StepKind::wait: return ranks_[r].arrived[plan.wait_begin[step.peer] + step.tag];
      case StepKind::put:
      case StepKind::copy:
        std::memcpy(at(plan.rank, step.dst), at(plan.rank, plan.sources_of(step)[0]), step.bytes);
        break;
      case StepKind::reduce: reduce(plan, step); break;
      case StepKind::signal: break;
    }
    if (step.kind == StepKind::put || step.kind == StepKind::signal)
      ranks_[static_cast<size_t>(step.peer)]
          .arrived[plans_[static_cast<size_t>(step.peer)].wait_begin[r] + step.tag] = true;
    return true;
  }

  void reduce(const Plan& plan, const Step& step) {
    std::vector<const void*> sources;
    for (const Region& source : plan.sources_of(step)) sources.push_back(at(plan.rank, source));
    device::Reduction reduction{type_, op_};
    if (plan.request.strict) reduction.order = device::Order::tree;
    if (op_ == device::ReduceOp::avg && step.final) reduction.divisor = static_cast<uint32_t>(plan.ranks);
    reduction.weights = plan.contributions_of(step).data();
    device::reduce(reduction, at(plan.rank, step.dst), sources.data(), static_cast<int>(sources.size()),
                   step.bytes / device::size_of(type_));
  }

  const std::vector<Plan>& plans_;
  const device::DataType type_;
  const device::ReduceOp op_;
  std::vector<Rank> ranks_;
};

}  // namespace weft::plan::testing
