#include "engine/brief.h"

#include "base/memory_watch.h"
#include "engine/communicator.h"
#include "engine/context.h"
#include "engine/interpreter.h"

namespace weft::engine {
namespace {

using plan::Region;
using plan::Step;
using plan::StepKind;
using transport::Progress;

std::byte* own(const Operation& op, const Region& region) {
  return op.base[static_cast<int>(region.space)] + region.offset;
}

Result<Progress> send(const Operation& op, const Step& step) {
  const bool data = step.kind == StepKind::put;
  transport::Envelope e;
  e.comm = op.comm->id();
  e.op = op.number;
  e.signature = op.signature;
  e.kind = static_cast<uint8_t>(data ? MessageKind::data : MessageKind::signal);
  e.set_tag(step.tag);
  if (data) {
    e.space = static_cast<uint8_t>(step.dst.space);
    e.offset = step.dst.offset;
    e.bytes = static_cast<uint32_t>(step.bytes);
  }
  const std::byte* const payload = data ? own(op, op.prepared->plan.regions[step.sources]) : nullptr;
  return op.comm->route(step.peer)->send(op.comm->world_rank(step.peer), e, payload);
}

void copy(const Operation& op, const Step& step) {
  const std::byte* const from = own(op, op.prepared->plan.regions[step.sources]);
  std::byte* const to = own(op, step.dst);
  if (from != to) device::copy(to, from, step.bytes);
}

void reduce(Operation& op, const Step& step) {
  const Region* const regions = op.prepared->plan.regions.data() + step.sources;
  auto& sources = op.comm->context().reduce_sources();
  sources.resize(step.source_count);
  for (uint32_t s = 0; s < step.source_count; ++s) sources[s] = own(op, regions[s]);
  device::Reduction reduction = op.reduction;
  if (!step.final) reduction.divisor = 1;
  device::reduce(reduction, own(op, step.dst), sources.data(), static_cast<int>(step.source_count),
                 step.bytes / device::size_of(reduction.type));
}

// Does a step that waits for nothing but room to send.
BriefOutcome carry_out(Operation& op, const Step& step, Status& trouble) {
  BriefOutcome outcome = BriefOutcome::done;
  if (step.kind == StepKind::copy) {
    copy(op, step);
  } else if (step.kind == StepKind::reduce) {
    reduce(op, step);
  } else {
    const Result<Progress> progress = send(op, step);
    if (!progress) trouble = progress.status();
    else if (*progress == Progress::busy) outcome = BriefOutcome::waits;
  }
  if (MemoryWatch::lost() && trouble.ok()) [[unlikely]]
    trouble = op.comm->context().lost_memory(op);
  return trouble.ok() ? outcome : BriefOutcome::failed;
}

}  // namespace

void begin_brief(Operation& op) {
  reset_arrivals(op);
  op.lanes[0].next = 0;
}

BriefOutcome advance_brief(Operation& op, Status& trouble) {
  const plan::Plan& plan = op.prepared->plan;
  uint32_t& next = op.lanes[0].next;
  for (const auto end = static_cast<uint32_t>(plan.steps.size()); next != end; ++next) {
    const Step& step = plan.steps[plan.lane_steps[next]];
    if (step.kind == StepKind::wait) {
      if (op.arrived[plan.wait_begin[step.peer] + step.tag]) continue;
      op.may_move = false;
      return BriefOutcome::waits;
    }
    const BriefOutcome outcome = carry_out(op, step, trouble);
    if (outcome == BriefOutcome::done) continue;
    op.may_move = true;
    return outcome;
  }
  return BriefOutcome::done;
}

void hand_over(Operation& op) {
  const Prepared& prepared = *op.prepared;
  const plan::Plan& plan = prepared.plan;
  const uint32_t next = op.lanes[0].next;
  reset_steps(op);
  op.lanes[0].next = next;
  op.lanes_left = next != plan.steps.size();
  for (uint32_t i = 0; i < next; ++i) {
    const plan::StepId id = plan.lane_steps[i];
    const int32_t put = prepared.put_of_step[id];
    if (put >= 0) {
      op.completions[put].done = true;
      ++op.puts_started;
    } else if (!op.step_done.empty()) {
      op.step_done[id] = 1;
    }
  }
  op.may_move = true;
}

}  // namespace weft::engine
