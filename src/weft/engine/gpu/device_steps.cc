#include "engine/gpu/device_steps.h"

#include <algorithm>

#include "engine/context/context.h"
#include "engine/gpu/device_run.h"
#include "engine/run/communicator.h"
#include "engine/run/interpreter.h"

namespace weft::engine {
namespace {

using plan::Region;
using plan::Step;
using transport::Completion;
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

/// One step of one operation.
class DeviceStepper {
 public:
  DeviceStepper(Operation& op, const Step& step, uint32_t lane)
      : op_(op),
        step_(step),
        lane_(lane),
        run_(*op.device),
        executor_(run_.executor()),
        work_(run_.lane(lane)),
        queue_(by_kernel() ? executor_.kernel_queue() : executor_.queue(lane)),
        scope_(executor_.device()) {}

  Result<DeviceStep> put(plan::StepId id, transport::Envelope envelope);
  Result<DeviceStep> copy();
  Result<DeviceStep> reduce();

 private:
  Memory own(const Region& region) const {
    return {op_.base[static_cast<int>(region.space)] + region.offset, !run_.on_device(region.space), true};
  }
  Result<Memory> source(uint32_t r) const {
    const Region& region = op_.prepared->plan.regions[r];
    const int32_t handle = op_.prepared->handle_of_region[r];
    return handle < 0 ? own(region) : learned(handle, region.offset, region.rank);
  }
  Result<Memory> learned(int32_t handle, uint64_t offset, int rank) const {
    const PeerBuffer& known = op_.learned[handle];
    if (!known.mapped)
      return fail(Code::mismatch,
                  "rank {} has called this operation on host memory, rank {} on GPU memory: create the "
                  "communicator with a device on all ranks, or on none",
                  rank, op_.comm->rank());
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
  Result<DeviceStep> settle() {
    auto ready = settled();
    if (!ready) return ready.status();
    if (!*ready) return DeviceStep::waits;
    run_.clear(work_);
    return DeviceStep::done;
  }
  Result<DeviceStep> waits() {
    auto ticket = queue_.mark();
    if (!ticket) return ticket.status();
    work_.ticket = ticket.take();
    return DeviceStep::waits;
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

  Result<DeviceStep> queue_put(plan::StepId id);
  Result<DeviceStep> hand_over(plan::StepId id, transport::Envelope envelope);
  Result<DeviceStep> reduce_on_device(const std::vector<Memory>& sources, const Memory& dst);
  Result<DeviceStep> reduce_on_host(const std::vector<Memory>& sources, const Memory& dst);
  bool one_sided(int32_t handle) const {
    return handle >= 0 &&
           (step_.bytes > op_.comm->members().route(step_.peer)->eager_bytes() || op_.learned[handle].mapped);
  }

  Operation& op_;
  const Step& step_;
  const uint32_t lane_;
  DeviceRun& run_;
  DeviceExecutor& executor_;
  DeviceRun::LaneWork& work_;
  cuda::Queue& queue_;
  const cuda::Scope scope_;
};

// ---- put: what is in device memory goes to the peer's memory, is read by the network where it is, or goes
// into pinned memory from where it is sent.

Result<DeviceStep> DeviceStepper::put(plan::StepId id, transport::Envelope envelope) {
  if (work_.phase == 0) {
    auto queued = queue_put(id);
    if (!queued) return queued;
    work_.phase = 1;
    if (*queued == DeviceStep::waits) return queued;
  }
  auto ready = settled();
  if (!ready) return ready.status();
  return *ready ? hand_over(id, envelope) : DeviceStep::waits;
}

Result<DeviceStep> DeviceStepper::queue_put(plan::StepId id) {
  const Memory from = own(op_.prepared->plan.regions[step_.sources]);
  const int32_t handle = op_.prepared->handle_of_step[id];
  if (one_sided(handle) && op_.learned[handle].mapped) {
    auto target = learned(handle, step_.dst.offset, step_.peer);
    if (!target) return target.status();
    WEFT_TRY(queue_.copy(target->address, from.address, step_.bytes));
    return waits();
  }
  if (step_.bytes > kLongestPut)
    return fail(Code::unsupported,
                "a message of {} bytes of GPU memory to rank {} on another node: at most {} go at once; set "
                "WEFT_SLICE_BYTES, or call with fewer elements",
                step_.bytes, step_.peer, kLongestPut);
  if (from.host) return DeviceStep::done;
  const plan::Space space = op_.prepared->plan.regions[step_.sources].space;
  if (one_sided(handle) && run_.expose_directly(*op_.comm->members().route(step_.peer), space))
    return DeviceStep::done;
  auto block = host_block(step_.bytes);
  if (!block) return block.status();
  WEFT_TRY(queue_.copy(*block, from.address, step_.bytes));
  return waits();
}

Result<DeviceStep> DeviceStepper::hand_over(plan::StepId id, transport::Envelope envelope) {
  transport::Transport* const transport = op_.comm->members().route(step_.peer);
  const int world = op_.comm->world_rank(step_.peer);
  const int32_t handle = op_.prepared->handle_of_step[id];
  Completion& completion = op_.completions[op_.prepared->put_of_step[id]];
  const Memory from = own(op_.prepared->plan.regions[step_.sources]);
  const bool read_in_place = !from.host && work_.host.empty();  // GPU memory, by the network
  const std::byte* const source = work_.host.empty() ? from.address : work_.host.front().data;
  Result<Progress> progress = Progress::busy;
  if (one_sided(handle) && op_.learned[handle].mapped) {  // it is there: only the notification is left
    envelope.kind = static_cast<uint8_t>(MessageKind::signal);
    envelope.bytes = 0;
    progress = transport->send(world, envelope, nullptr);
  } else if (one_sided(handle) && read_in_place) {
    progress = transport->gpu_direct()->put_gpu(world, envelope, source, step_.bytes,
                                                op_.learned[handle].buffer, step_.dst.offset, &completion);
  } else if (one_sided(handle)) {
    progress = transport->put(world, envelope, source, step_.bytes, op_.learned[handle].buffer,
                              step_.dst.offset, &completion);
  } else {
    progress = transport->send(world, envelope, source);
  }
  if (!progress) return progress.status();
  if (*progress == Progress::busy) return DeviceStep::waits;
  const bool under_way = one_sided(handle) && !op_.learned[handle].mapped;
  if (!under_way) completion.done = true;
  ++op_.puts_started;
  if (!completion.done) {
    ++op_.puts_open;
    for (cuda::Block block : work_.host) run_.keep(block);
    work_.host.clear();
  }
  run_.clear(work_);
  return DeviceStep::done;
}

// ---- copy

Result<DeviceStep> DeviceStepper::copy() {
  if (work_.phase == 0) {
    auto from = source(step_.sources);
    if (!from) return from.status();
    const Memory to = own(step_.dst);
    if (from->address == to.address) return DeviceStep::done;
    WEFT_TRY(queue_.copy(to.address, from->address, step_.bytes));
    work_.phase = 1;
    return waits();
  }
  return settle();
}

// ---- reduce

Result<DeviceStep> DeviceStepper::reduce() {
  std::vector<Memory> sources;
  for (uint32_t s = 0; s < step_.source_count; ++s) {
    auto memory = source(step_.sources + s);
    if (!memory) return memory.status();
    sources.push_back(*memory);
  }
  return by_kernel() ? reduce_on_device(sources, own(step_.dst)) : reduce_on_host(sources, own(step_.dst));
}

Result<DeviceStep> DeviceStepper::reduce_on_device(const std::vector<Memory>& sources, const Memory& dst) {
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
Result<DeviceStep> DeviceStepper::reduce_on_host(const std::vector<Memory>& sources, const Memory& dst) {
  LaneState& state = op_.lanes[lane_];
  while (true) {
    auto ready = settled();
    if (!ready) return ready.status();
    if (!*ready) return DeviceStep::waits;
    const uint64_t at = state.progress, bytes = std::min(step_.bytes - at, kPieceBytes);
    if (work_.phase == 0) {
      bool queued = false;
      for (const Memory& memory : sources) {
        if (memory.host) continue;
        auto block = host_block(bytes);
        if (!block) return block.status();
        WEFT_TRY(queue_.copy(*block, memory.address + at, bytes));
        queued = true;
      }
      work_.phase = 1;
      if (queued) return waits();
    } else if (work_.phase == 1) {
      auto& addresses = op_.comm->context().workspace().reduce_sources();
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
      work_.phase = 2;
      if (!dst.host) {
        WEFT_TRY(queue_.copy(dst.address + at, into, bytes));
        return waits();
      }
    } else {
      run_.clear(work_);
      state.progress += bytes;
      return state.progress == step_.bytes ? DeviceStep::done : DeviceStep::waits;
    }
  }
}

}  // namespace

Result<DeviceStep> device_put(Operation& op, plan::StepId id, const Step& step, uint32_t lane,
                              transport::Envelope envelope) {
  return DeviceStepper(op, step, lane).put(id, envelope);
}

Result<DeviceStep> device_copy(Operation& op, const Step& step, uint32_t lane) {
  return DeviceStepper(op, step, lane).copy();
}

Result<DeviceStep> device_reduce(Operation& op, const Step& step, uint32_t lane) {
  return DeviceStepper(op, step, lane).reduce();
}

}  // namespace weft::engine
