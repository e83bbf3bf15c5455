#include "engine/run/interpreter.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "base/memory_watch.h"
#include "engine/context/context.h"
#include "engine/failure/peer_losses.h"
#include "engine/gpu/device_run.h"
#include "engine/gpu/device_steps.h"
#include "engine/record/trace.h"
#include "engine/run/access_gate.h"
#include "engine/run/communicator.h"
#include "transport/helped.h"

namespace weft::engine {
namespace {

using plan::Region;
using plan::Space;
using plan::Step;
using plan::StepId;
using plan::StepKind;
using transport::Completion;
using transport::Envelope;
using transport::Progress;

// How much a lane copies or reduces before the transports are looked at again: about 30 µs of work.
constexpr uint64_t kTurnBytes = 512 << 10;
// Blocks in which memory that cannot be mapped is read for a reduction: the pieces of all sources stay in the
// L2 cache.
constexpr uint64_t kBounceBytes = 128 << 10;
// What a step of so many bytes has written is out of its core's cache before a peer is told of it.
constexpr uint64_t kGoneBytes = 16 << 20;

// `failed`: the interpreter holds the reason.
enum class Outcome : uint8_t { done, blocked, turn_over, failed };

class Interpreter {
 public:
  explicit Interpreter(Operation& op) : op_(op), plan_(op.prepared->plan), comm_(*op.comm) {}

  Result<bool> run() {
    if (op_.unreachable_ns != 0) [[unlikely]]
      return await_reason();
    bool moved = reap_puts();
    if (op_.device) {
      Result<bool> polled = op_.device->poll();
      if (!polled) return polled;
      moved |= *polled;
      op_.may_move = true;
      if (!op_.device->prepared()) return moved;
    }
    const uint32_t lanes = static_cast<uint32_t>(op_.lanes.size());
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (op_.lanes[lane].next == plan_.lane_begin[lane + 1]) continue;
      moved |= run_lane(lane);
      if (failed_) return std::move(failure_);
      if (op_.unreachable_ns != 0) [[unlikely]]
        return await_reason();
    }
    // Besides messages, puts that complete, room in a queue and steps of other lanes move an operation, and a
    // lane may have stopped at the end of its turn.
    op_.may_move = moved || op_.puts_open > 0 || refused_ || op_.device;
    if (op_.device && op_.lanes_left == 0 && op_.puts_open == 0)
      if (Status concluded = op_.device->conclude(); !concluded) return concluded;
    return moved;
  }

 private:
  bool run_lane(uint32_t lane) {
    LaneState& state = op_.lanes[lane];
    const uint32_t end = plan_.lane_begin[lane + 1];
    bool moved = false;
    while (state.next != end) {
      const StepId id = plan_.lane_steps[state.next];
      const Step& step = plan_.steps[id];
      if (step.after_count != 0 && !ready(step)) return moved;
      Outcome outcome = try_step(id, step, state);
      if (MemoryWatch::lost()) [[unlikely]]
        if (Status gone = LostMemory::of(op_); !gone.ok()) outcome = failed(std::move(gone));
      if (outcome == Outcome::failed) return moved;
      if (outcome == Outcome::blocked) {
        refused_ |= step.kind != StepKind::wait;
        return moved;
      }
      moved = true;
      if (outcome == Outcome::turn_over) return moved;
      if (!op_.step_done.empty() && step.kind != StepKind::put) op_.step_done[id] = 1;
      state.progress = 0;
      if (Trace* trace = comm_.context().trace()) state.since = trace->step(op_, lane, id, state.since);
      if (++state.next == end) --op_.lanes_left;
    }
    return moved;
  }

  bool ready(const Step& step) const {
    for (StepId id : plan_.after(step)) {
      const int32_t put = op_.prepared->put_of_step[id];
      if (put >= 0 ? !op_.completions[put].done : !op_.step_done[id]) return false;
    }
    return true;
  }

  // A put that completes later is counted open until its flag is seen.
  bool reap_puts() {
    if (op_.puts_open == 0) return false;
    uint32_t open = 0;
    for (const Completion& completion : op_.completions) open += !completion.done;
    // Puts that have not been started are not done either; they are counted by their lanes.
    const uint32_t not_started = op_.prepared->puts - op_.puts_started;
    open -= not_started;
    const bool moved = open != op_.puts_open;
    op_.puts_open = open;
    return moved;
  }

  Outcome try_step(StepId id, const Step& step, LaneState& state) {
    switch (step.kind) {
      case StepKind::put: return op_.device ? on_device(id, step, state) : put(id, step);
      case StepKind::signal: return signal(step);
      case StepKind::wait:
        return op_.arrived[plan_.wait_begin[step.peer] + step.tag] ? Outcome::done : Outcome::blocked;
      case StepKind::copy: return op_.device ? on_device(id, step, state) : copy(step, state);
      case StepKind::reduce: return op_.device ? on_device(id, step, state) : reduce(step, state);
    }
    return failed(fail(Code::internal_error, "plan {} has a step of unknown kind", plan_.algorithm));
  }

  Outcome on_device(StepId id, const Step& step, LaneState& state) {
    const auto lane = static_cast<uint32_t>(&state - op_.lanes.data());
    Result<DeviceStep> result = DeviceStep::waits;
    if (step.kind == StepKind::put) {
      Envelope e = envelope(step, MessageKind::data);
      e.space = static_cast<uint8_t>(step.dst.space);
      e.offset = step.dst.offset;
      e.bytes = transport::envelope_bytes(step.bytes);
      result = device_put(op_, id, step, lane, e);
    } else {
      result = step.kind == StepKind::copy ? device_copy(op_, step, lane) : device_reduce(op_, step, lane);
    }
    if (!result) return unreachable(result.status());
    return *result == DeviceStep::done ? Outcome::done : Outcome::blocked;
  }

  Outcome failed(Status why) {
    failure_ = std::move(why);
    failed_ = true;
    return Outcome::failed;
  }

  // A peer that has failed may be gone, or its memory, before it is heard why. That is waited for, and no
  // step is tried meanwhile: what is at that address by then may be anything.
  Outcome unreachable(Status why) {
    if (why.code() != Code::remote_error) return failed(std::move(why));
    op_.set_unreachable(std::move(why), now_ns());
    return Outcome::blocked;
  }
  Result<bool> await_reason() {
    op_.may_move = true;
    if (now_ns() - op_.unreachable_ns < PeerLosses::kGraceNs) return false;
    return op_.unreachable;
  }

  Envelope envelope(const Step& step, MessageKind kind) const {
    Envelope e;
    e.comm = comm_.id();
    e.op = op_.number;
    e.signature = op_.signature_with(step.peer);
    e.kind = static_cast<uint8_t>(kind);
    e.set_tag(step.tag);
    return e;
  }

  Outcome put(StepId id, const Step& step) {
    transport::Transport* transport = comm_.members().route(step.peer);
    const std::byte* source = own(plan_.regions[step.sources]);
    Envelope e = envelope(step, MessageKind::data);
    e.space = static_cast<uint8_t>(step.dst.space);
    e.offset = step.dst.offset;
    e.bytes = transport::envelope_bytes(step.bytes);
    const int world = comm_.world_rank(step.peer);
    Completion& completion = op_.completions[op_.prepared->put_of_step[id]];
    const int32_t handle = op_.prepared->handle_of_step[id];
    const bool one_sided = handle >= 0 && op_.learned[handle].takes_put(step.bytes, *transport);

    Result<Progress> progress = Progress::busy;
    if (one_sided) {
      const AccessGuard guard(comm_.context().workspace().accessor());
      if (!guard.admitted(op_.learned[handle].gate)) return Outcome::blocked;
      progress = transport->put(world, e, source, step.bytes, op_.learned[handle].buffer, step.dst.offset,
                                &completion);
    } else {
      progress = transport->send(world, e, source);
      if (progress && *progress == Progress::accepted) completion.done = true;
    }
    if (!progress) return unreachable(progress.status());
    if (*progress == Progress::busy) return Outcome::blocked;
    ++op_.puts_started;
    if (!completion.done) ++op_.puts_open;
    return Outcome::done;
  }

  Outcome signal(const Step& step) {
    transport::Transport* transport = comm_.members().route(step.peer);
    Envelope e = envelope(step, MessageKind::signal);
    const void* payload = nullptr;
    device::cuda::SharedMemory shared;
    if (op_.device && step.exposes != Space::none && comm_.layout().same_node(comm_.rank(), step.peer) &&
        op_.device->on_device(step.exposes)) {
      Result<device::cuda::SharedMemory> described = op_.device->share(step.exposes);
      if (!described) return failed(described.status());
      shared = *described;
      e.kind = static_cast<uint8_t>(MessageKind::expose_device);
      e.space = static_cast<uint8_t>(step.exposes);
      e.bytes = sizeof shared;
      payload = &shared;
    } else if (step.exposes != Space::none) {
      Result<const transport::RemoteBuffer*> buffer = expose(*transport, step);
      if (!buffer) return failed(buffer.status());
      e.kind = static_cast<uint8_t>(op_.device ? MessageKind::expose_staged : MessageKind::expose);
      e.space = static_cast<uint8_t>(step.exposes);
      e.bytes = sizeof(transport::RemoteBuffer);
      payload = *buffer;
    }
    Result<Progress> progress = transport->send(comm_.world_rank(step.peer), e, payload);
    if (!progress) return unreachable(progress.status());
    return *progress == Progress::accepted ? Outcome::done : Outcome::blocked;
  }

  // An own space, or a block of it, is registered with a transport at its first exposure and stays so until
  // the operation ends.
  Result<const transport::RemoteBuffer*> expose(transport::Transport& transport, const Step& step) {
    const Space space = step.exposes;
    const plan::SharedBlock block = op_.shared_with(step.peer, space);
    for (const auto& exposure : op_.exposures)
      if (exposure.transport == &transport && exposure.space == space &&
          (op_.device || exposure.block == block))
        return &exposure.buffer;
    const int index = static_cast<int>(space);
    std::byte* memory = op_.base[index];
    if (op_.device) {
      if (const auto* direct = op_.device->expose_directly(transport, space)) return direct;
      Result<std::byte*> landing = op_.device->make_landing(space);
      if (!landing) return landing.status();
      memory = *landing;
    }
    Result<transport::RemoteBuffer> buffer = transport.expose(memory + block.begin, block.bytes);
    if (!buffer) return buffer.status();
    op_.exposures.push_back({&transport, space, *buffer, block});
    return &op_.exposures.back().buffer;
  }

  Outcome copy(const Step& step, LaneState& state) {
    const Region& source = plan_.regions[step.sources];
    std::byte* dst = own(step.dst);
    const int32_t handle = op_.prepared->handle_of_region[step.sources];
    const uint64_t bytes = std::min(step.bytes - state.progress, kTurnBytes);
    const uint64_t at = state.progress;
    if (handle < 0) {
      const std::byte* src = own(source);
      if (src == dst) return Outcome::done;
      device::copy(dst + at, src + at, bytes, streamed_bytes(step));
    } else if (const PeerBuffer& learned = op_.learned[handle]; learned.mapped) {
      const AccessGuard guard(comm_.context().workspace().accessor());
      if (!guard.admitted(learned.gate)) return Outcome::blocked;
      device::copy(dst + at, learned.mapped + source.offset + at, bytes, streamed_bytes(step));
    } else {
      if (at == 0) begin_readings(step);
      if (SourceReading* reading = op_.readings.find(step.sources)) return copy_pieces(step, state, *reading);
      if (auto read = read_source(step.sources, at, bytes, dst + at); !read)
        return unreachable(read.status());
    }
    state.progress += bytes;
    return state.progress == step.bytes ? Outcome::done : Outcome::turn_over;
  }

  // A copy that the source's owner helps with.
  Outcome copy_pieces(const Step& step, LaneState& state, SourceReading& source) {
    const uint64_t begin = state.progress, end = std::min(step.bytes, begin + kTurnBytes);
    while (state.progress < end) {
      if (!source.may_go_on()) return state.progress > begin ? Outcome::turn_over : Outcome::blocked;
      std::byte* const into = own(step.dst) + state.progress;
      const uint64_t bytes = source.piece();
      Result<const std::byte*> from = source.start(into);
      if (!from) return unreachable(from.status());
      if (*from != into) device::copy(into, *from, bytes, streamed_bytes(step));
      source.finish(1);
      state.progress += bytes;
    }
    if (state.progress < step.bytes) return Outcome::turn_over;
    op_.readings.end(step.sources, step.source_count);
    return Outcome::done;
  }

  Outcome reduce(const Step& step, LaneState& state) {
    device::Reduction reduction = op_.reduction_of(step);
    reduction.message_bytes = streamed_bytes(step, step.dst.space == Space::output);
    const size_t element = device::size_of(reduction.type);
    const uint64_t turn = std::max<uint64_t>(kTurnBytes / step.source_count / 64 * 64, kBounceBytes);
    const uint64_t end = std::min(step.bytes, state.progress + turn);

    // With a source that has to be read, go block by block through the bounce buffer, or piece by piece as
    // its owner brings it; else all at once.
    uint32_t unmapped = 0;
    for (uint32_t s = 0; s < step.source_count; ++s) unmapped += address(step.sources + s) == nullptr;
    if (unmapped > 0 && state.progress == 0) begin_readings(step);
    const uint64_t block = unmapped == 0 ? end - state.progress : kBounceBytes;
    auto& sources = comm_.context().workspace().reduce_sources();
    sources.resize(step.source_count);
    std::byte* bounce = unmapped == 0 ? nullptr : comm_.context().workspace().bounce(unmapped * kBounceBytes);

    const uint64_t begin = state.progress;
    while (state.progress < end) {
      const uint64_t at = state.progress;
      uint64_t bytes = std::min(block, end - at);
      if (unmapped > 0 && !pieces_there(step, bytes))
        return at > begin ? Outcome::turn_over : Outcome::blocked;
      std::optional<AccessGuard> guard;
      if (op_.prepared->handles > 0) guard.emplace(comm_.context().workspace().accessor());
      if (guard && !admitted(*guard, step)) return at > begin ? Outcome::turn_over : Outcome::blocked;
      uint32_t slot = 0;
      for (uint32_t s = 0; s < step.source_count; ++s) {
        const std::byte* mapped = address(step.sources + s);
        if (mapped) {
          sources[s] = mapped + at;
          continue;
        }
        Result<const std::byte*> read =
            read_source(step.sources + s, at, bytes, bounce + kBounceBytes * slot++);
        if (!read) return unreachable(read.status());
        sources[s] = *read;
      }
      device::reduce(reduction, own(step.dst) + at, sources.data(), static_cast<int>(step.source_count),
                     bytes / element);
      finish_pieces(step);
      state.progress += bytes;
    }
    if (state.progress < step.bytes) return Outcome::turn_over;
    if (!op_.readings.empty()) op_.readings.end(step.sources, step.source_count);
    return Outcome::done;
  }

  // Whether all memory that a step reads may be touched inside this guard.
  bool admitted(const AccessGuard& guard, const Step& step) const {
    for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
      const int32_t handle = op_.prepared->handle_of_region[r];
      if (handle >= 0 && !guard.admitted(op_.learned[handle].gate)) return false;
    }
    return true;
  }

  // ---- plain memory of peers

  // Asks the owners of a long step's sources for help, once: a step that waits for its first piece comes here
  // again. Where ranks share CPUs nobody has time for that.
  void begin_readings(const Step& step) {
    if (comm_.context().fabric().oversubscribed()) return;
    if (!transport::is_helped(step.bytes, plan::has_root(plan_.request.collective))) return;
    for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
      if (address(r) != nullptr || op_.readings.find(r) != nullptr) continue;
      const Region& region = plan_.regions[r];
      auto reading = comm_.members()
                         .route(region.rank)
                         ->begin_reading(comm_.world_rank(region.rank),
                                         op_.learned[op_.prepared->handle_of_region[r]].buffer, region.offset,
                                         step.bytes);
      if (reading) op_.readings.add(r, std::move(reading));
    }
  }

  // Whether the next piece of every source with a reading may be used; sets `bytes` to its length.
  bool pieces_there(const Step& step, uint64_t& bytes) {
    if (op_.readings.empty()) return true;
    bool there = true;
    for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
      SourceReading* const reading = op_.readings.find(r);
      if (reading == nullptr) continue;
      bytes = reading->piece();
      there &= reading->may_go_on();
    }
    return there;
  }

  void finish_pieces(const Step& step) {
    if (op_.readings.empty()) return;
    const uint32_t end = step.sources + step.source_count;
    int together = 0;
    for (uint32_t r = step.sources; r < end; ++r) together += op_.readings.find(r) != nullptr;
    for (uint32_t r = step.sources; r < end; ++r)
      if (SourceReading* reading = op_.readings.find(r)) reading->finish(together);
  }

  // `bytes` of source region `r` from `at` on, wherever they are or read into `bounce`.
  Result<const std::byte*> read_source(uint32_t r, uint64_t at, uint64_t bytes, std::byte* bounce) {
    if (SourceReading* reading = op_.readings.find(r)) return reading->start(bounce);
    const Region& region = plan_.regions[r];
    const PeerBuffer& learned = op_.learned[op_.prepared->handle_of_region[r]];
    WEFT_TRY(comm_.members()
                 .route(region.rank)
                 ->read(comm_.world_rank(region.rank), learned.buffer, region.offset + at, bounce, bytes));
    return static_cast<const std::byte*>(bounce);
  }

  // The whole length of what a step writes, or of the buffer that it writes a slice of, so that long data may
  // go around the cache, unless a peer finds it there.
  uint64_t streamed_bytes(const Step& step, bool slice = false) const {
    const auto space = static_cast<size_t>(step.dst.space);
    const bool read_soon = op_.prepared->exposes[space] && step.bytes < kGoneBytes;
    if (read_soon) return 0;
    return slice ? op_.base_bytes[space] : step.bytes;
  }

  std::byte* own(const Region& region) const {
    return op_.base[static_cast<int>(region.space)] + region.offset;
  }

  // Where source region `r` can be read from here; null if only a transport's read() reaches it.
  const std::byte* address(uint32_t r) const {
    const int32_t handle = op_.prepared->handle_of_region[r];
    if (handle < 0) return own(plan_.regions[r]);
    const std::byte* mapped = op_.learned[handle].mapped;
    return mapped ? mapped + plan_.regions[r].offset : nullptr;
  }

  Operation& op_;
  const plan::Plan& plan_;
  Communicator& comm_;
  bool refused_ = false;  // a transport was busy
  bool failed_ = false;
  Status failure_;
};

// Gives the operation's books the lengths that its plan needs.
void lay_out(Operation& op) {
  const Prepared& prepared = *op.prepared;
  const plan::Plan& plan = prepared.plan;
  op.laid_out_for = &prepared;
  op.arrived.resize(plan.notifications());
  op.learned.resize(prepared.handles);
  op.completions.resize(prepared.puts);
  op.step_done.resize(plan.has_dependents ? plan.steps.size() : 0);
  op.lanes.resize(plan.lanes());
}

}  // namespace

void reset_arrivals(Operation& op) {
  if (op.laid_out_for != op.prepared.get()) lay_out(op);
  std::fill(op.arrived.begin(), op.arrived.end(), uint8_t{0});
}

void reset_steps(Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  std::fill(op.learned.begin(), op.learned.end(), PeerBuffer{});
  std::fill(op.completions.begin(), op.completions.end(), Completion{});
  std::fill(op.step_done.begin(), op.step_done.end(), uint8_t{0});
  op.lanes_left = 0;
  const uint64_t since = op.context->trace() ? ticks() : 0;
  for (int lane = 0; lane < plan.lanes(); ++lane) {
    op.lanes[lane] = {plan.lane_begin[lane], 0, since};
    op.lanes_left += plan.lane_begin[lane] != plan.lane_begin[lane + 1];
  }
  op.puts_open = 0;
  op.puts_started = 0;
}

void reset_progress(Operation& op) {
  reset_arrivals(op);
  reset_steps(op);
}

Result<bool> advance(Operation& op) { return Interpreter(op).run(); }

bool complete(const Operation& op) {
  return op.lanes_left == 0 && op.puts_open == 0 && (!op.device || op.device->finished());
}

std::vector<int> awaited_peers(const Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  std::vector<int> peers;
  for (size_t lane = 0; lane < op.lanes.size(); ++lane) {
    for (uint32_t i = plan.lane_begin[lane]; op.puts_open > 0 && i < op.lanes[lane].next; ++i) {
      const StepId id = plan.lane_steps[i];
      const int32_t put = op.prepared->put_of_step[id];
      if (put >= 0 && !op.completions[put].done) peers.push_back(plan.steps[id].peer);
    }
    if (op.lanes[lane].next == plan.lane_begin[lane + 1]) continue;
    const Step& step = plan.steps[plan.lane_steps[op.lanes[lane].next]];
    const bool waits = step.kind == StepKind::wait && !op.arrived[plan.wait_begin[step.peer] + step.tag];
    const bool stuck_sending = step.kind == StepKind::put || step.kind == StepKind::signal;
    if (waits || stuck_sending) peers.push_back(step.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool deals_with(const Operation& op, int peer) {
  const plan::Plan& plan = op.prepared->plan;
  const int other = op.comm->rank_of_world(peer);
  for (size_t lane = 0; lane < op.lanes.size(); ++lane) {
    for (uint32_t i = op.lanes[lane].next; i < plan.lane_begin[lane + 1]; ++i) {
      const Step& step = plan.steps[plan.lane_steps[i]];
      if (step.peer != other) continue;
      if (step.kind == StepKind::put || step.kind == StepKind::signal) return true;
      if (step.kind == StepKind::wait && !op.arrived[plan.wait_begin[other] + step.tag]) return true;
    }
  }
  return false;
}

}  // namespace weft::engine
