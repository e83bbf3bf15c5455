// What the tables of step operations share: what a step's message says, and whether a put goes one-sided; and
// LaneSteps, the operations that host and GPU memory have in common.
//
// Thread safety: under the context's lock.
#pragma once

#include <utility>

#include "base/status.h"
#include "engine/run/message_kind.h"
#include "engine/run/operation.h"
#include "engine/run/run_environment.h"
#include "engine/run/step_loop.h"

namespace weft::engine {

/// The message of a put or of a signal. `signature`: that of the messages between the step's two ranks.
inline transport::Envelope envelope_of(const RunEnvironment& environment, const Operation& op,
                                       const plan::Step& step, uint32_t signature) {
  transport::Envelope e;
  e.comm = environment.comm;
  e.op = op.number;
  e.signature = signature;
  e.set_tag(step.tag);
  if (step.kind == plan::StepKind::put) {
    e.kind = static_cast<uint8_t>(MessageKind::data);
    e.space = static_cast<uint8_t>(step.dst.space);
    e.offset = step.dst.offset;
    e.bytes = transport::envelope_bytes(step.bytes);
  } else {
    e.kind = static_cast<uint8_t>(MessageKind::signal);
  }
  return e;
}

/// The peer's memory that a put writes by itself; null: it goes as a message. What no message holds is always
/// one-sided: a plan waits for its destination. Others may find that destination learned, or not.
inline const PeerBuffer* one_sided_target(const Operation& op, plan::StepId id, const plan::Step& step,
                                          const transport::Transport& transport) {
  const int32_t handle = op.tables->handle_of_step[id];
  if (handle < 0) return nullptr;
  const PeerBuffer& target = op.progress.learned[static_cast<size_t>(handle)];
  const bool one_sided = step.bytes > transport.eager_bytes() || target.mapped != nullptr ||
                         (step.bytes > transport.brief_put_bytes() && target.buffer.bytes > 0);
  return one_sided ? &target : nullptr;
}

/// The part of a table that host and GPU memory share.
class LaneSteps {
 public:
  LaneSteps(const RunEnvironment& environment, Operation& op)
      : environment_(environment), op_(op), plan_(op.tables->plan) {}

  StepOutcome wait(const plan::Step& step) const {
    return op_.progress.arrived[plan_.wait_begin[static_cast<size_t>(step.peer)] + step.tag]
               ? StepOutcome::done
               : StepOutcome::waits;
  }
  bool ready(const plan::Step& step) const {
    if (step.after_count == 0) return true;
    for (const plan::StepId id : plan_.after(step))
      if (!op_.progress.is_done(id, *op_.tables)) return false;
    return true;
  }
  bool memory_lost();
  void completed(plan::StepId id, const plan::Step& step, LaneState& lane);
  /// Why a step has failed.
  Status take_failure() { return std::move(failure_); }

 protected:
  StepOutcome failed(Status why) {
    failure_ = std::move(why);
    return StepOutcome::failed;
  }
  /// A peer that has failed may be gone, or its memory, before its report comes. The operation waits for that
  /// report and tries no step meanwhile: what is at that address by then may be anything.
  StepOutcome unreachable(Status why);
  /// The end of a copy or reduction: `done` if the peers whose memory it has read had that memory unchanged.
  /// A peer that has failed gives its caller the buffers back, and does not wait for those who read them.
  StepOutcome all_read(const plan::Step& step);
  /// Sends a signal, with `payload` if it exposes a space, and the announcement of a put if it is that.
  StepOutcome send(const plan::Step& step, const transport::Envelope& envelope, const void* payload);
  transport::Envelope envelope(const plan::Step& step) const {
    return envelope_of(environment_, op_, step, op_.signature_with(step.peer));
  }
  /// Registers an own space, which lies at `memory`, or a block of it with the step's transport. It stays
  /// registered until the operation ends.
  Result<const transport::RemoteBuffer*> expose(const plan::Step& step, std::byte* memory);
  transport::Transport* route(int peer) const { return environment_.members.route(peer); }

  const RunEnvironment& environment_;
  Operation& op_;
  const plan::Plan& plan_;

 private:
  StepOutcome hand_over(const plan::Step& step, const transport::Envelope& envelope, const void* payload);

  Status failure_;
};

}  // namespace weft::engine
