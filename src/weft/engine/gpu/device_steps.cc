#include "engine/gpu/device_steps.h"

#include <algorithm>

#include "engine/gpu/device_run.h"

namespace weft::engine {
namespace {

using plan::Region;
using plan::Step;
using transport::Progress;

// How much of each source the CPU reduces at a time: copies of one lane's next piece overlap with another's
// sum.
constexpr uint64_t kPieceBytes = 1 << 20;
// An envelope counts its bytes in 32 bits, and what lands in host memory is brought to the device by that
// count.
constexpr uint64_t kLongestPut = UINT32_MAX;

/// Memory of a step, and who can touch it.
struct Memory {
  std::byte* address = nullptr;
  bool host = false;     // a CPU can
  bool kernels = false;  // kernels can
};

/// A put, copy or reduction of one operation.
class DeviceStep {
 public:
  DeviceStep(const RunEnvironment& environment, Operation& op, const Step& step)
      : environment_(environment),
        op_(op),
        step_(step),
        run_(*op.device),
        executor_(run_.executor()),
        work_(run_.lane(step.lane)),
        queue_(by_kernel() ? executor_.kernel_queue() : executor_.queue(step.lane)),
        scope_(executor_.device()) {}

  Result<StepOutcome> put(plan::StepId id);
  Result<StepOutcome> copy();
  Result<StepOutcome> reduce(LaneState& lane);

 private:
  Memory own(const Region& region) const {
    return {op_.memory.at(region), !run_.on_device(region.space), true};
  }
  Result<Memory> source(uint32_t r) const {
    const Region& region = op_.tables->plan.regions[r];
    const int32_t handle = op_.tables->handle_of_region[r];
    return handle < 0 ? own(region) : learned(handle, region.offset, region.rank);
  }
  Result<Memory> learned(int32_t handle, uint64_t offset, int rank) const {
    const PeerBuffer& known = op_.progress.learned[handle];
    if (!known.mapped)
      return fail(Code::mismatch,
                  "rank {} has called this operation on host memory, rank {} on GPU memory: create the "
                  "communicator with a device on all ranks, or on none",
                  rank, environment_.members.rank());
    return Memory{known.mapped + offset, !known.on_device, known.on_device};
  }

  bool by_kernel() const {
    return step_.kind == plan::StepKind::reduce && executor_.kernels() &&
           cuda::Kernels::takes(static_cast<int>(step_.source_count));
  }
  /// Whether what was queued for this step has ended; true if nothing was.
  Result<bool> settled() {
    if (!work_.ticket.valid()) return true;
    auto done = work_.ticket.done();
    if (done && *done) work_.ticket = cuda::Ticket();
    return done;
  }
  /// The end of a step, once what was queued for it has ended.
  Result<StepOutcome> settle() {
    auto ready = settled();
    if (!ready) return ready.status();
    if (!*ready) return StepOutcome::retry;
    run_.clear(work_);
    return StepOutcome::done;
  }
  Result<StepOutcome> waits() {
    auto ticket = queue_.mark();
    if (!ticket) return ticket.status();
    work_.ticket = ticket.take();
    return StepOutcome::retry;
  }
  Result<std::byte*> host_block(uint64_t bytes) { return block(executor_.host_blocks(), work_.host, bytes); }
  Result<std::byte*> device_block(uint64_t bytes) {
    return block(executor_.device_blocks(), work_.device, bytes);
  }
  static Result<std::byte*> block(cuda::BlockPool& pool, std::vector<cuda::Block>& into, uint64_t bytes) {
    auto taken = pool.take(bytes);
    if (!taken) return taken.status();
    into.push_back(*taken);
    return taken->data;
  }

  Status queue_put(PendingPut& put);
  Result<StepOutcome> reduce_on_device(const std::vector<Memory>& sources, const Memory& dst);
  Result<StepOutcome> reduce_on_host(const std::vector<Memory>& sources, const Memory& dst, LaneState& lane);
  Result<bool> bring_sources(const std::vector<Memory>& sources, uint64_t at, uint64_t bytes);
  Result<bool> add_up(const std::vector<Memory>& sources, const Memory& dst, uint64_t at, uint64_t bytes);

  const RunEnvironment& environment_;
  Operation& op_;
  const Step& step_;
  DeviceRun& run_;
  DeviceExecutor& executor_;
  DeviceRun::LaneWork& work_;
  cuda::Queue& queue_;
  const cuda::Scope scope_;
};

// ---- put: what is in device memory goes to the peer's memory, is read by the network where it is, or goes
// into pinned memory from where it is sent. The lane goes on meanwhile.

Result<StepOutcome> DeviceStep::put(plan::StepId id) {
  PendingPut put{id, PutPath::message, {}};
  WEFT_TRY(queue_put(put));
  op_.progress.begin_put(op_.progress.completions[op_.tables->put_of_step[id]]);
  return StepOutcome::done;
}

// Decided once for each put: the peer's memory may be learned while the put's copy is under way.
Status DeviceStep::queue_put(PendingPut& put) {
  const Region& source = op_.tables->plan.regions[step_.sources];
  const Memory from = own(source);
  transport::Transport& transport = *environment_.members.route(step_.peer);
  const PeerBuffer* const target = one_sided_target(op_, put.step, step_, transport);
  SideCopies& copies = run_.side_copies();
  if (target && target->mapped) {
    auto memory = learned(op_.tables->handle_of_step[put.step], step_.dst.offset, step_.peer);
    if (!memory) return memory.status();
    put.path = PutPath::copied;
    WEFT_TRY(queue_.copy(memory->address, from.address, step_.bytes));
    copies.add(queue_, put);
    return {};
  }
  if (step_.bytes > kLongestPut)
    return fail(Code::unsupported,
                "a message of {} bytes of GPU memory to rank {} on another node: at most {} go at once; set "
                "WEFT_SLICE_BYTES, or call with fewer elements",
                step_.bytes, step_.peer, kLongestPut);
  put.path = target ? PutPath::one_sided : PutPath::message;
  const bool in_place = !from.host && target && run_.expose_directly(transport, source.space);
  if (in_place) put.path = PutPath::in_place;
  if (from.host || in_place) {
    copies.add(put);
    return {};
  }
  auto block = executor_.host_blocks().take(step_.bytes);
  if (!block) return block.status();
  put.block = *block;
  copies.add(queue_, put);
  return queue_.copy(block->data, from.address, step_.bytes);
}

// ---- copy

Result<StepOutcome> DeviceStep::copy() {
  if (work_.phase == 0) {
    auto from = source(step_.sources);
    if (!from) return from.status();
    const Memory to = own(step_.dst);
    if (from->address == to.address) return StepOutcome::done;
    WEFT_TRY(queue_.copy(to.address, from->address, step_.bytes));
    work_.phase = 1;
    return waits();
  }
  return settle();
}

// ---- reduce

Result<StepOutcome> DeviceStep::reduce(LaneState& lane) {
  std::vector<Memory> sources;
  for (uint32_t s = 0; s < step_.source_count; ++s) {
    auto memory = source(step_.sources + s);
    if (!memory) return memory.status();
    sources.push_back(*memory);
  }
  return by_kernel() ? reduce_on_device(sources, own(step_.dst))
                     : reduce_on_host(sources, own(step_.dst), lane);
}

Result<StepOutcome> DeviceStep::reduce_on_device(const std::vector<Memory>& sources, const Memory& dst) {
  if (work_.phase == 0) {
    std::vector<const void*> addresses;
    for (const Memory& memory : sources) {
      addresses.push_back(memory.address);
      if (memory.kernels) continue;
      auto block = device_block(step_.bytes);
      if (!block) return block.status();
      WEFT_TRY(queue_.copy(*block, memory.address, step_.bytes));
      addresses.back() = *block;
    }
    const size_t count = step_.bytes / device::size_of(op_.reduction.type);
    WEFT_TRY(executor_.kernels()->reduce(queue_, op_.reduction_of(step_), dst.address, addresses.data(),
                                         static_cast<int>(addresses.size()), count));
    work_.phase = 1;
    return waits();
  }
  return settle();
}

// A piece at a time: phase 0 brings the sources to the host, phase 1 adds them up and sends the sum back,
// phase 2 waits for that.
Result<StepOutcome> DeviceStep::reduce_on_host(const std::vector<Memory>& sources, const Memory& dst,
                                               LaneState& lane) {
  while (true) {
    auto ready = settled();
    if (!ready) return ready.status();
    if (!*ready) return StepOutcome::retry;
    const uint64_t at = lane.progress, bytes = std::min(step_.bytes - at, kPieceBytes);
    if (work_.phase == 2) {
      run_.clear(work_);
      lane.progress += bytes;
      return lane.progress == step_.bytes ? StepOutcome::done : StepOutcome::retry;
    }
    auto queued = work_.phase == 0 ? bring_sources(sources, at, bytes) : add_up(sources, dst, at, bytes);
    if (!queued) return queued.status();
    ++work_.phase;
    if (*queued) return waits();
  }
}

// True if a copy to the host was queued.
Result<bool> DeviceStep::bring_sources(const std::vector<Memory>& sources, uint64_t at, uint64_t bytes) {
  bool queued = false;
  for (const Memory& memory : sources) {
    if (memory.host) continue;
    auto block = host_block(bytes);
    if (!block) return block.status();
    WEFT_TRY(queue_.copy(*block, memory.address + at, bytes));
    queued = true;
  }
  return queued;
}

// True if a copy of the sum to the device was queued.
Result<bool> DeviceStep::add_up(const std::vector<Memory>& sources, const Memory& dst, uint64_t at,
                                uint64_t bytes) {
  auto& addresses = environment_.workspace.reduce_sources();
  addresses.clear();
  size_t block = 0;
  for (const Memory& memory : sources)
    addresses.push_back(memory.host ? memory.address + at : work_.host[block++].data);
  std::byte* into = dst.address + at;
  if (!dst.host) {
    auto sum = host_block(bytes);
    if (!sum) return sum.status();
    into = *sum;
  }
  device::reduce(op_.reduction_of(step_), into, addresses.data(), static_cast<int>(addresses.size()),
                 bytes / device::size_of(op_.reduction.type));
  if (dst.host) return false;
  WEFT_TRY(queue_.copy(dst.address + at, into, bytes));
  return true;
}

}  // namespace

// ---- The table

Result<Progress> DeviceSteps::start_put(const PendingPut& put, transport::Completion& completion) {
  const Step& step = plan_.steps[put.step];
  transport::Transport* const transport = route(step.peer);
  const int world = environment_.members.world_rank(step.peer);
  transport::Envelope e = envelope(step);
  const std::byte* const source =
      put.block.data ? put.block.data : op_.memory.at(plan_.regions[step.sources]);
  switch (put.path) {
    case PutPath::message: return transport->send(world, e, source);
    case PutPath::copied:  // only the notification is left
      e.kind = static_cast<uint8_t>(MessageKind::signal);
      e.bytes = 0;
      return transport->send(world, e, nullptr);
    case PutPath::in_place:
    case PutPath::one_sided: break;
  }
  const auto handle = static_cast<size_t>(op_.tables->handle_of_step[put.step]);
  const transport::RemoteBuffer& target = op_.progress.learned[handle].buffer;
  return put.path == PutPath::in_place
             ? transport->gpu_direct()->put_gpu(world, e, source, step.bytes, target, step.dst.offset,
                                                &completion)
             : transport->put(world, e, source, step.bytes, target, step.dst.offset, &completion);
}

StepOutcome DeviceSteps::hand_over_puts() {
  std::vector<PendingPut>& ready = op_.device->side_copies().ready();
  StepOutcome outcome = StepOutcome::done;
  size_t kept = 0;
  for (size_t i = 0; i < ready.size(); ++i) {
    const PendingPut put = ready[i];
    transport::Completion& completion =
        op_.progress.completions[static_cast<size_t>(op_.tables->put_of_step[put.step])];
    const Result<Progress> progress =
        outcome == StepOutcome::done ? start_put(put, completion) : Result<Progress>(Progress::busy);
    if (!progress) outcome = unreachable(progress.status());
    if (!progress || *progress == Progress::busy) {
      ready[kept++] = put;
      continue;
    }
    if (put.path == PutPath::message || put.path == PutPath::copied) completion.done = true;
    if (!put.block.data) continue;
    if (completion.done) op_.device->executor().host_blocks().give(put.block);
    else op_.device->keep(put.block);
  }
  ready.resize(kept);
  return outcome;
}

StepOutcome DeviceSteps::outcome_of(const Result<StepOutcome>& result) {
  return result ? *result : unreachable(result.status());
}

StepOutcome DeviceSteps::outcome_of_read(const Step& step, const Result<StepOutcome>& result) {
  const StepOutcome outcome = outcome_of(result);
  return outcome == StepOutcome::done ? all_read(step) : outcome;
}

StepOutcome DeviceSteps::put(plan::StepId id, const Step& step) {
  return outcome_of(DeviceStep(environment_, op_, step).put(id));
}

StepOutcome DeviceSteps::copy(const Step& step, LaneState&) {
  return outcome_of_read(step, DeviceStep(environment_, op_, step).copy());
}

StepOutcome DeviceSteps::reduce(const Step& step, LaneState& lane) {
  return outcome_of_read(step, DeviceStep(environment_, op_, step).reduce(lane));
}

StepOutcome DeviceSteps::signal(const Step& step) {
  transport::Envelope e = envelope(step);
  if (step.exposes == plan::Space::none) return send(step, e, nullptr);
  const Membership& members = environment_.members;
  e.space = static_cast<uint8_t>(step.exposes);
  if (members.layout().same_node(members.rank(), step.peer) && op_.device->on_device(step.exposes)) {
    const Result<cuda::SharedMemory> shared = op_.device->share(step.exposes);
    if (!shared) return failed(shared.status());
    e.kind = static_cast<uint8_t>(MessageKind::expose_device);
    e.bytes = sizeof *shared;
    return send(step, e, &*shared);
  }
  const Result<const transport::RemoteBuffer*> buffer = expose(step);
  if (!buffer) return failed(buffer.status());
  e.kind = static_cast<uint8_t>(MessageKind::expose_staged);
  e.bytes = sizeof(transport::RemoteBuffer);
  return send(step, e, *buffer);
}

// For a peer whose transport writes: into GPU memory itself where it can, else into a landing.
Result<const transport::RemoteBuffer*> DeviceSteps::expose(const Step& step) {
  transport::Transport& transport = *route(step.peer);
  const plan::SharedBlock block = op_.shared_with(step.peer, step.exposes);
  if (const auto* const known = op_.exposures.find(transport, step.exposes, block)) return known;
  if (const auto* const direct = op_.device->expose_directly(transport, step.exposes)) return direct;
  const Result<std::byte*> landing = op_.device->make_landing(step.exposes);
  if (!landing) return landing.status();
  return LaneSteps::expose(step, *landing);
}

}  // namespace weft::engine
