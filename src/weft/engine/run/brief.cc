#include "engine/run/brief.h"

#include "base/memory_watch.h"
#include "base/short_copy.h"
#include "engine/context/context.h"
#include "engine/run/communicator.h"
#include "engine/run/interpreter.h"
#include "transport/shm.h"

namespace weft::engine {
namespace {

using plan::Region;
using plan::Step;
using plan::StepKind;
using transport::Progress;

std::byte* own(const Operation& op, const Region& region) {
  return op.base[static_cast<int>(region.space)] + region.offset;
}

transport::Envelope envelope_of(const Operation& op, const Step& step) {
  transport::Envelope e;
  e.comm = op.comm->id();
  e.op = op.number;
  e.signature = op.signature;
  e.set_tag(step.tag);
  if (step.kind == StepKind::put) {
    e.kind = static_cast<uint8_t>(MessageKind::data);
    e.space = static_cast<uint8_t>(step.dst.space);
    e.offset = step.dst.offset;
    e.bytes = static_cast<uint32_t>(step.bytes);
  } else {
    e.kind = static_cast<uint8_t>(MessageKind::signal);
  }
  return e;
}

const std::byte* payload_of(const Operation& op, const Step& step) {
  return step.kind == StepKind::put ? own(op, op.prepared->plan.regions[step.sources]) : nullptr;
}

// The envelope is made anew, so that the one that is made below has no address and is written into the slot.
[[gnu::noinline]] BriefOutcome send_slowly(const Operation& op, const Step& step, Status& trouble) {
  const Result<Progress> progress = op.context->fabric().shm()->send(
      op.comm->world_rank(step.peer), envelope_of(op, step), payload_of(op, step));
  if (progress) return *progress == Progress::busy ? BriefOutcome::waits : BriefOutcome::done;
  trouble = progress.status();
  return BriefOutcome::failed;
}

BriefOutcome send(const Operation& op, const Step& step, Status& trouble) {
  const bool sent = op.context->fabric().shm()->send_short(op.comm->world_rank(step.peer),
                                                           envelope_of(op, step), payload_of(op, step));
  return sent ? BriefOutcome::done : send_slowly(op, step, trouble);
}

void copy(const Operation& op, const Step& step) {
  const std::byte* const from = own(op, op.prepared->plan.regions[step.sources]);
  std::byte* const to = own(op, step.dst);
  if (from == to) return;
  if (step.bytes <= kShortCopy) copy_short(to, from, step.bytes);
  else device::copy(to, from, step.bytes);
}

void reduce(Operation& op, const Step& step) {
  const Region* const regions = op.prepared->plan.regions.data() + step.sources;
  auto& sources = op.comm->context().workspace().reduce_sources();
  if (sources.size() < step.source_count) sources.resize(step.source_count);
  for (uint32_t s = 0; s < step.source_count; ++s) sources[s] = own(op, regions[s]);
  device::reduce(op.reduction_of(step), own(op, step.dst), sources.data(),
                 static_cast<int>(step.source_count), step.bytes / device::size_of(op.reduction.type));
}

// Does a step that waits for nothing but room to send.
BriefOutcome carry_out(Operation& op, const Step& step, Status& trouble) {
  BriefOutcome outcome = BriefOutcome::done;
  if (step.kind == StepKind::copy) copy(op, step);
  else if (step.kind == StepKind::reduce) reduce(op, step);
  else outcome = send(op, step, trouble);
  if (MemoryWatch::lost() && trouble.ok()) [[unlikely]]
    if (trouble = LostMemory::of(op); !trouble.ok()) outcome = BriefOutcome::failed;
  return outcome;
}

// Whether a message was the data that one of the operation's waits is for, in its slot: it is where it
// belongs.
bool take(Operation& op, int peer, const transport::Envelope& e, const std::byte* payload) {
  if (e.op != op.number || e.comm != op.comm->id() || e.signature != op.signature) return false;
  if (static_cast<MessageKind>(e.kind) != MessageKind::data || e.bytes > kShortCopy || !payload) return false;
  const std::vector<uint32_t>& wait_begin = op.prepared->plan.wait_begin;
  const int from = op.comm->rank_of_world(peer);
  const uint32_t number = wait_begin[from] + e.tag();
  if (number >= wait_begin[from + 1] || !op.fits(e, from)) return false;
  copy_short(op.base[e.space] + e.offset, payload, e.bytes);
  op.arrived[number] = 1;
  return true;
}

}  // namespace

BriefOutcome advance_brief(Operation& op, Status& trouble) {
  const plan::Plan& plan = op.prepared->plan;
  uint32_t& next = op.lanes[0].next;
  for (const auto end = static_cast<uint32_t>(plan.lane_steps.size()); next != end; ++next) {
    const Step& step = plan.steps[plan.lane_steps[next]];
    if (step.kind == StepKind::wait) {
      uint8_t& arrived = op.arrived[plan.wait_begin[step.peer] + step.tag];
      if (!arrived) {
        op.may_move = false;
        return BriefOutcome::waits;
      }
      arrived = 0;  // for the next call like this one
      continue;
    }
    const BriefOutcome outcome = carry_out(op, step, trouble);
    if (outcome == BriefOutcome::done) continue;
    op.may_move = true;
    return outcome;
  }
  return BriefOutcome::done;
}

int receive_brief(Operation& op) {
  return op.context->fabric().shm()->poll_next(
      [&op](int peer) { return op.context->inbox().takes_early(peer) || deals_with(op, peer); },
      [&op](int peer, const transport::Envelope& envelope, const std::byte* payload) {
        if (!take(op, peer, envelope, payload)) op.context->inbox().arrived(peer, envelope, payload);
      });
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
