#include "engine/run/host_steps.h"

#include <algorithm>
#include <optional>

#include "transport/helped.h"

namespace weft::engine {

using plan::Region;
using plan::Space;
using plan::Step;
using plan::StepId;
using transport::Progress;

namespace {

// How much a lane copies or reduces before the transports are looked at again: about 30 µs of work.
constexpr uint64_t kTurnBytes = 512 << 10;
// Blocks in which memory that cannot be mapped is read for a reduction: the pieces of all sources stay in the
// L2 cache.
constexpr uint64_t kBounceBytes = 128 << 10;
// A step of so many bytes pushes what it has written out of its core's cache before its signal leaves.
constexpr uint64_t kGoneBytes = 16 << 20;

}  // namespace

StepOutcome HostSteps::put(StepId id, const Step& step) {
  transport::Transport* const transport = route(step.peer);
  const std::byte* const source = op_.memory.at(plan_.regions[step.sources]);
  const transport::Envelope e = envelope(step);
  const int world = environment_.members.world_rank(step.peer);
  transport::Completion& completion = op_.progress.completions[op_.tables->put_of_step[id]];

  Result<Progress> progress = Progress::busy;
  if (const PeerBuffer* const target = one_sided_target(op_, id, step, *transport)) {
    const AccessGuard guard(environment_.workspace.accessor());
    if (!guard.admitted(target->gate)) return StepOutcome::retry;
    progress = transport->put(world, e, source, step.bytes, target->buffer, step.dst.offset, &completion);
  } else {
    progress = transport->send(world, e, source);
    if (progress && *progress == Progress::accepted) completion.done = true;
  }
  if (!progress) return unreachable(progress.status());
  if (*progress == Progress::busy) return StepOutcome::retry;
  op_.progress.begin_put(completion);
  return StepOutcome::done;
}

StepOutcome HostSteps::signal(const Step& step) {
  transport::Envelope e = envelope(step);
  if (step.exposes == Space::none) return send(step, e, nullptr);
  auto buffer = expose(step, op_.memory.base[static_cast<int>(step.exposes)]);
  if (!buffer) return failed(buffer.status());
  e.kind = static_cast<uint8_t>(MessageKind::expose);
  e.space = static_cast<uint8_t>(step.exposes);
  e.bytes = sizeof(transport::RemoteBuffer);
  return send(step, e, *buffer);
}

// ---- copy

StepOutcome HostSteps::copy(const Step& step, LaneState& lane) {
  const Region& source = plan_.regions[step.sources];
  std::byte* const dst = op_.memory.at(step.dst);
  const int32_t handle = op_.tables->handle_of_region[step.sources];
  const uint64_t bytes = std::min(step.bytes - lane.progress, kTurnBytes);
  const uint64_t at = lane.progress;
  if (handle < 0) {
    const std::byte* const src = op_.memory.at(source);
    if (src == dst) return StepOutcome::done;
    device::copy(dst + at, src + at, bytes, streamed_bytes(step));
  } else if (const PeerBuffer& learned = op_.progress.learned[handle]; learned.mapped) {
    const AccessGuard guard(environment_.workspace.accessor());
    if (!guard.admitted(learned.gate)) return StepOutcome::retry;
    device::copy(dst + at, learned.mapped + source.offset + at, bytes, streamed_bytes(step));
  } else {
    if (at == 0) begin_readings(step);
    if (SourceReading* reading = op_.exposures.readings.find(step.sources))
      return copy_pieces(step, lane, *reading);
    if (auto read = read_source(step.sources, at, bytes, dst + at); !read) return unreachable(read.status());
  }
  lane.progress += bytes;
  return lane.progress == step.bytes ? all_read(step) : StepOutcome::turn_over;
}

// A copy that the source's owner helps with.
StepOutcome HostSteps::copy_pieces(const Step& step, LaneState& lane, SourceReading& source) {
  const uint64_t begin = lane.progress, end = std::min(step.bytes, begin + kTurnBytes);
  while (lane.progress < end) {
    if (!source.may_go_on()) return lane.progress > begin ? StepOutcome::turn_over : StepOutcome::retry;
    std::byte* const into = op_.memory.at(step.dst) + lane.progress;
    const uint64_t bytes = source.piece();
    Result<const std::byte*> from = source.start(into);
    if (!from) return unreachable(from.status());
    if (*from != into) device::copy(into, *from, bytes, streamed_bytes(step));
    source.finish(1);
    lane.progress += bytes;
  }
  if (lane.progress < step.bytes) return StepOutcome::turn_over;
  op_.exposures.readings.end(step.sources, step.source_count);
  return all_read(step);
}

// ---- reduce

// `retry`: a source may not be touched any more, or a peer cannot be reached.
[[gnu::always_inline]] inline StepOutcome HostSteps::reduce_block(const Step& step,
                                                                  const device::Reduction& reduction,
                                                                  uint64_t at, uint64_t bytes,
                                                                  std::byte* bounce) {
  std::vector<const void*>& sources = environment_.workspace.reduce_sources();
  sources.resize(step.source_count);
  std::optional<AccessGuard> guard;
  if (op_.tables->handles > 0) guard.emplace(environment_.workspace.accessor());
  if (guard && !admitted(*guard, step)) return StepOutcome::retry;
  for (uint32_t s = 0; s < step.source_count; ++s) {
    if (const std::byte* const mapped = address(step.sources + s)) {
      sources[s] = mapped + at;
      continue;
    }
    Result<const std::byte*> read = read_source(step.sources + s, at, bytes, bounce);
    if (!read) return unreachable(read.status());
    bounce += kBounceBytes;
    sources[s] = *read;
  }
  device::reduce(reduction, op_.memory.at(step.dst) + at, sources.data(), static_cast<int>(step.source_count),
                 bytes / device::size_of(reduction.type));
  finish_pieces(step);
  return StepOutcome::done;
}

// A reduction with a source that has to be read goes block by block through the bounce buffer, or piece by
// piece as the source's owner brings it. Any other is done all at once.
StepOutcome HostSteps::reduce(const Step& step, LaneState& lane) {
  device::Reduction reduction = op_.reduction_of(step);
  reduction.message_bytes = streamed_bytes(step, step.dst.space == Space::output);
  const uint64_t turn = std::max<uint64_t>(kTurnBytes / step.source_count / 64 * 64, kBounceBytes);
  const uint64_t begin = lane.progress, end = std::min(step.bytes, begin + turn);

  uint32_t unmapped = 0;
  for (uint32_t s = 0; s < step.source_count; ++s) unmapped += address(step.sources + s) == nullptr;
  if (unmapped > 0 && begin == 0) begin_readings(step);
  const uint64_t block = unmapped == 0 ? end - begin : kBounceBytes;
  std::byte* const bounce = unmapped == 0 ? nullptr : environment_.workspace.bounce(unmapped * kBounceBytes);

  while (lane.progress < end) {
    uint64_t bytes = std::min(block, end - lane.progress);
    StepOutcome outcome = StepOutcome::retry;
    if (unmapped == 0 || pieces_there(step, bytes))
      outcome = reduce_block(step, reduction, lane.progress, bytes, bounce);
    if (outcome == StepOutcome::retry && lane.progress > begin) return StepOutcome::turn_over;
    if (outcome != StepOutcome::done) return outcome;
    lane.progress += bytes;
  }
  if (lane.progress < step.bytes) return StepOutcome::turn_over;
  if (!op_.exposures.readings.empty()) op_.exposures.readings.end(step.sources, step.source_count);
  return all_read(step);
}

// Whether all memory that a step reads may be touched inside this guard.
bool HostSteps::admitted(const AccessGuard& guard, const Step& step) const {
  for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
    const int32_t handle = op_.tables->handle_of_region[r];
    if (handle >= 0 && !guard.admitted(op_.progress.learned[handle].gate)) return false;
  }
  return true;
}

// ---- Plain memory of peers

// Asks the owners of a long step's sources for help, once: a step that waits for its first piece comes here
// again. Where ranks share CPUs no owner has time for that.
void HostSteps::begin_readings(const Step& step) {
  if (environment_.oversubscribed) return;
  if (!transport::is_helped(step.bytes, plan::has_root(plan_.request.collective))) return;
  for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
    if (address(r) != nullptr || op_.exposures.readings.find(r) != nullptr) continue;
    const Region& region = plan_.regions[r];
    auto reading = route(region.rank)
                       ->peer_mapping()
                       ->begin_reading(environment_.members.world_rank(region.rank),
                                       op_.progress.learned[op_.tables->handle_of_region[r]].buffer,
                                       region.offset, step.bytes);
    if (reading) op_.exposures.readings.add(r, std::move(reading));
  }
}

// Whether the next piece of every source with a reading may be used; sets `bytes` to its length.
bool HostSteps::pieces_there(const Step& step, uint64_t& bytes) {
  if (op_.exposures.readings.empty()) return true;
  bool there = true;
  for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
    SourceReading* const reading = op_.exposures.readings.find(r);
    if (reading == nullptr) continue;
    bytes = reading->piece();
    there &= reading->may_go_on();
  }
  return there;
}

void HostSteps::finish_pieces(const Step& step) {
  if (op_.exposures.readings.empty()) return;
  const uint32_t end = step.sources + step.source_count;
  int together = 0;
  for (uint32_t r = step.sources; r < end; ++r) together += op_.exposures.readings.find(r) != nullptr;
  for (uint32_t r = step.sources; r < end; ++r)
    if (SourceReading* reading = op_.exposures.readings.find(r)) reading->finish(together);
}

// `bytes` of source region `r` from `at` on, wherever they are or read into `bounce`.
Result<const std::byte*> HostSteps::read_source(uint32_t r, uint64_t at, uint64_t bytes, std::byte* bounce) {
  if (SourceReading* reading = op_.exposures.readings.find(r)) return reading->start(bounce);
  const Region& region = plan_.regions[r];
  const PeerBuffer& learned = op_.progress.learned[op_.tables->handle_of_region[r]];
  WEFT_TRY(route(region.rank)
               ->peer_mapping()
               ->read(environment_.members.world_rank(region.rank), learned.buffer, region.offset + at,
                      bounce, bytes));
  return static_cast<const std::byte*>(bounce);
}

// The whole length of what a step writes, or of the buffer that it writes a slice of, so that long data may
// go around the cache, unless a peer finds it there.
uint64_t HostSteps::streamed_bytes(const Step& step, bool slice) const {
  const auto space = static_cast<size_t>(step.dst.space);
  const bool read_soon = op_.tables->exposes[space] && step.bytes < kGoneBytes;
  if (read_soon) return 0;
  return slice ? op_.memory.bytes[space] : step.bytes;
}

// Where source region `r` can be read from here; null if only a transport's read() reaches it.
const std::byte* HostSteps::address(uint32_t r) const {
  const int32_t handle = op_.tables->handle_of_region[r];
  if (handle < 0) return op_.memory.at(plan_.regions[r]);
  const std::byte* const mapped = op_.progress.learned[handle].mapped;
  return mapped ? mapped + plan_.regions[r].offset : nullptr;
}

}  // namespace weft::engine
