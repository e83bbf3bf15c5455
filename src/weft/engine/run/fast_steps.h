// FastSteps: the step operations of the fast path (context/fast_path.h), for plans of one lane that consist
// of short messages inside a node, and copies and reductions of the rank's own memory. Such plans learn no
// memory of peers, so that each put is a message; and a step that comes after another in its lane needs no
// further test.
//
// FastSteps keeps in the operation which step is next and what has arrived, no more. What the interpreter
// keeps besides follows from that (StepProgress::follow_fast_path()), so that it can go on with the
// operation.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <utility>

#include "base/short_copy.h"
#include "engine/failure/lost_memory.h"
#include "engine/run/step_parts.h"
#include "transport/shm.h"

namespace weft::engine {

class FastSteps {
 public:
  FastSteps(const RunEnvironment& environment, Operation& op)
      : environment_(environment), op_(op), plan_(op.tables->plan) {}

  StepOutcome put(plan::StepId, const plan::Step& step) {
    return send(step, op_.memory.at(plan_.regions[step.sources]));
  }
  StepOutcome signal(const plan::Step& step) { return send(step, nullptr); }
  StepOutcome wait(const plan::Step& step) {
    uint8_t& arrived = op_.progress.arrived[plan_.wait_begin[static_cast<size_t>(step.peer)] + step.tag];
    if (!arrived) return StepOutcome::waits;
    arrived = 0;  // for the next call like this one
    return StepOutcome::done;
  }
  StepOutcome copy(const plan::Step& step, LaneState&) {
    const std::byte* const from = op_.memory.at(plan_.regions[step.sources]);
    std::byte* const to = op_.memory.at(step.dst);
    if (from == to) return StepOutcome::done;
    if (step.bytes <= kShortCopy) copy_short(to, from, step.bytes);
    else device::copy(to, from, step.bytes);
    return StepOutcome::done;
  }
  StepOutcome reduce(const plan::Step& step, LaneState&) {
    const plan::Region* const regions = plan_.regions.data() + step.sources;
    std::vector<const void*>& sources = environment_.workspace.reduce_sources();
    if (sources.size() < step.source_count) sources.resize(step.source_count);
    for (uint32_t s = 0; s < step.source_count; ++s) sources[s] = op_.memory.at(regions[s]);
    // Sizes of elements are powers of two. A division would take longer than the additions.
    const uint64_t count = step.bytes >> __builtin_ctzl(device::size_of(op_.reduction.type));
    device::reduce(op_.reduction_of(step), op_.memory.at(step.dst), sources.data(),
                   static_cast<int>(step.source_count), count);
    return StepOutcome::done;
  }
  static bool ready(const plan::Step&) { return true; }
  bool memory_lost() {
    if (failure_.ok()) failure_ = LostMemory::of(op_);
    return !failure_.ok();
  }
  static void completed(plan::StepId, const plan::Step&, LaneState&) {}
  Status take_failure() { return std::move(failure_); }
  bool ok() const { return failure_.ok(); }
  void fail(Status why) { failure_ = std::move(why); }

  /// Runs the plan on, until its end or a step that has to wait.
  StepOutcome run() {
    return run_lane(*this, plan_, op_.progress.lanes[0], static_cast<uint32_t>(plan_.lane_steps.size()));
  }
  /// Whether a message was the data that one of the operation's waits is for, in its slot: it is where it
  /// belongs.
  bool take(int peer, const transport::Envelope& e, const std::byte* payload) {
    if (e.op != op_.number || e.comm != environment_.comm || e.signature != op_.signature) return false;
    if (static_cast<MessageKind>(e.kind) != MessageKind::data || e.bytes > kShortCopy || !payload)
      return false;
    const int from = environment_.members.rank_of_world(peer);
    if (e.tag() >= plan_.notifications_from(from) || !op_.memory.fits(e)) return false;
    copy_short(op_.memory.base[e.space] + e.offset, payload, e.bytes);
    op_.progress.arrived[plan_.wait_begin[static_cast<size_t>(from)] + e.tag()] = 1;
    return true;
  }

 private:
  StepOutcome send(const plan::Step& step, const std::byte* payload) {
    const bool sent =
        environment_.shm->send_short(environment_.members.world_rank(step.peer),
                                     envelope_of(environment_, op_, step, op_.signature), payload);
    return sent ? StepOutcome::done : send_slowly(step, payload);
  }
  // The envelope is made anew, so that the one of send() has no address and is written into the slot.
  [[gnu::noinline]] StepOutcome send_slowly(const plan::Step& step, const std::byte* payload) {
    const Result<transport::Progress> progress =
        environment_.shm->send(environment_.members.world_rank(step.peer),
                               envelope_of(environment_, op_, step, op_.signature), payload);
    if (progress) return *progress == transport::Progress::busy ? StepOutcome::retry : StepOutcome::done;
    failure_ = progress.status();
    return StepOutcome::failed;
  }

  const RunEnvironment& environment_;
  Operation& op_;
  const plan::Plan& plan_;
  Status failure_;
};

}  // namespace weft::engine
