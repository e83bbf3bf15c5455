#include "engine/run/step_parts.h"

#include "base/clock.h"
#include "engine/failure/lost_memory.h"
#include "engine/record/trace.h"
#include "engine/run/windows.h"

namespace weft::engine {

using transport::Progress;

bool LaneSteps::memory_lost() {
  Status gone = LostMemory::of(op_);
  if (gone.ok()) return false;
  (void)failed(std::move(gone));
  return true;
}

void LaneSteps::completed(plan::StepId id, const plan::Step& step, LaneState& lane) {
  if (!op_.progress.step_done.empty() && step.kind != plan::StepKind::put) op_.progress.step_done[id] = 1;
  lane.progress = 0;
  if (Trace* const trace = environment_.trace) lane.since = trace->step(op_, step.lane, id, lane.since);
}

StepOutcome LaneSteps::unreachable(Status why) {
  if (why.code() != Code::remote_error) return failed(std::move(why));
  op_.health.set_unreachable(std::move(why));
  return StepOutcome::retry;
}

// A peer of this process waits for its readers (AccessGate), and GPU memory has no exposure here.
StepOutcome LaneSteps::all_read(const plan::Step& step) {
  if (op_.tables->handles == 0) return StepOutcome::done;
  for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
    const int32_t handle = op_.tables->handle_of_region[r];
    if (handle < 0) continue;
    const PeerBuffer& source = op_.progress.learned[static_cast<size_t>(handle)];
    if (source.gate || source.on_device) continue;
    const int rank = plan_.regions[r].rank;
    if (route(rank)->peer_mapping()->revoked(environment_.members.world_rank(rank), source.buffer))
        [[unlikely]]
      return unreachable(
          fail(Code::remote_error, "rank {} has failed while this rank was reading its memory", rank));
  }
  return StepOutcome::done;
}

StepOutcome LaneSteps::send(const plan::Step& step, const transport::Envelope& envelope,
                            const void* payload) {
  const bool announces = plan_.request.announced && plan_.request.collective == plan::Collective::send &&
                         step.kind == plan::StepKind::signal && step.exposes == plan::Space::none;
  if (!announces) return hand_over(step, envelope, payload);
  const PutAnnouncement announcement = environment_.windows.announcement_of(op_);
  transport::Envelope e = envelope;
  e.kind = static_cast<uint8_t>(MessageKind::announce);
  e.bytes = sizeof announcement;
  return hand_over(step, e, &announcement);
}

StepOutcome LaneSteps::hand_over(const plan::Step& step, const transport::Envelope& envelope,
                                 const void* payload) {
  const Result<Progress> progress =
      route(step.peer)->send(environment_.members.world_rank(step.peer), envelope, payload);
  if (!progress) return unreachable(progress.status());
  return *progress == Progress::accepted ? StepOutcome::done : StepOutcome::retry;
}

Result<const transport::RemoteBuffer*> LaneSteps::expose(const plan::Step& step, std::byte* memory) {
  transport::Transport& transport = *route(step.peer);
  const plan::SharedBlock block = op_.shared_with(step.peer, step.exposes);
  if (const auto* const known = op_.exposures.find(transport, step.exposes, block)) return known;
  Result<transport::RemoteBuffer> buffer = transport.expose(memory + block.begin, block.bytes);
  if (!buffer) return buffer.status();
  return op_.exposures.add(transport, step.exposes, block, *buffer);
}

}  // namespace weft::engine
