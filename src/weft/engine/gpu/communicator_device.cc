// A communicator of GPU memory: what its calls check, and how they meet the caller's CUDA stream. The rest of
// a call is communicator_calls.cc's.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "device/cuda/surplus_claim.h"
#include "engine/gpu/captures.h"
#include "engine/run/communicator.h"
#include "engine/gpu/device_run.h"
#include "job/gpu_tuning.h"

namespace weft::engine {
namespace {

constexpr uint64_t kDevices = uint64_t{0x64657669} << 32;  // sets ids apart: see communicator.cc
constexpr double kFirstUseSeconds = 1;
constexpr auto kBetweenLooks = std::chrono::microseconds(20);

}  // namespace

// Sends nothing for a communicator that is shrunk from another: what that one measured counts on. Nor where
// some ranks have host memory, since those would not answer; the first operation tells of them.
Status Communicator::open_device(Siblings siblings, double meeting_s, const Communicator* shrunk_from) {
  if (options_.device < 0) return {};
  {
    const Lock lock = context_->lock();
    auto executor = context_->device_executor(options_.device);
    if (!executor) return stay_away(executor.status());
    device_executor_ = *executor;
    WEFT_TRY(settle_gpu_direct());
    captures_ = std::make_unique<Captures>(*this);
  }
  if (shrunk_from) {  // one of host memory shares none: nobody has tried how the device's is reached
    shares_gpu_memory_ = shrunk_from->shares_gpu_memory_;
    gpu_machine_ = shrunk_from->gpu_machine_;
    return {};
  }
  shares_gpu_memory_ = device_executor_->shares_memory();
  if (siblings == Siblings::mixed) return {};
  WEFT_TRY(settle_sharing(meeting_s));
  if (!context_->tunes() || size() == 1) return {};
  auto machine = machine_for_gpu(*this, *device_executor_);
  if (!machine) return machine.status();
  gpu_machine_ = std::make_shared<const model::Machine>(machine.take());
  return {};
}

// The others may be waiting already, in the meeting or in what tells them the machine: they hear why this
// rank does not come, and fail.
Status Communicator::stay_away(const Status& why) {
  for (const uint32_t id : {meeting_id(), id_}) context_->bootstrap().tell_failed(id, why.message());
  return why;
}

uint32_t Communicator::meeting_id() const { return hash_32(kDevices, id_); }

// Every rank lends the others a block, those of its node try to reach it, and all hear whether all could:
// what one rank stages its peers must not look for in GPU memory.
Status Communicator::settle_sharing(double meeting_s) {
  if (layout_.nodes() == size()) return {};
  CommOptions apart;  // a communicator of its own, so that nothing of it shows in the user's
  apart.name = name() + " devices";
  apart.timeout_s = meeting_s;
  Communicator meeting(context_, meeting_id(), world_of_, std::move(apart));
  const auto gather = [&](const void* mine, void* all, size_t bytes) {
    Call call;
    call.collective = plan::Collective::all_gather;
    call.send = mine;
    call.recv = all;
    call.count = bytes;
    call.type = device::DataType::uint8;
    return meeting.run(call);
  };
  cuda::SharedMemory offer;
  cuda::Block lent;
  {
    const Lock lock = context_->lock();
    const cuda::Scope scope(device_executor_->device());
    if (shares_gpu_memory_)
      if (auto block = device_executor_->device_blocks().take(1)) lent = *block;
    if (lent.data)
      if (auto described = device_executor_->exporter().describe(lent.data, 1, true)) offer = *described;
  }
  std::vector<cuda::SharedMemory> offers(static_cast<size_t>(size()));
  std::vector<uint8_t> reached_by(static_cast<size_t>(size()));
  Status reached;
  Status met = gather(&offer, offers.data(), sizeof offer);
  if (met.ok()) {
    reached = reach_neighbours(offers);
    const uint8_t mine = reached.ok();
    met = gather(&mine, reached_by.data(), sizeof mine);
  }
  const Lock lock = context_->lock();
  const cuda::Scope scope(device_executor_->device());
  device_executor_->device_blocks().give(lent);
  if (!met.ok()) return met.in("settling how GPU memory is shared");
  shares_gpu_memory_ = std::count(reached_by.begin(), reached_by.end(), 1) == size();
  if (!reached.ok() && settings().cuda_ipc)
    log::warn("communicator \"{}\": GPU memory is staged in pinned host memory inside nodes: rank {}: {}",
              name(), rank_, reached.message());
  return {};
}

Status Communicator::reach_neighbours(const std::vector<cuda::SharedMemory>& offers) {
  const Lock lock = context_->lock();
  const cuda::Scope scope(device_executor_->device());
  for (const int neighbour : layout_.on_node(layout_.node_of(rank_))) {
    const cuda::SharedMemory& offer = offers[static_cast<size_t>(neighbour)];
    if (offer.bytes == 0) return weft::fail(Code::unsupported, "rank {} cannot share its memory", neighbour);
    if (neighbour == rank_) continue;
    const auto reached = device_executor_->importer().reach(offer);
    const Status why = reached && !reached->address ? reached->why : reached.status();
    WEFT_TRY(why.in(fmt::format("rank {}", neighbour)));
  }
  return {};
}

// (lock) Every rank looks at the same offers, which came with the addresses, and so decides the same.
Status Communicator::settle_gpu_direct() {
  transport::Transport* const network = context_->fabric().between_nodes();
  if (layout_.nodes() == 1 || !network) return {};
  const auto offered_by_all = [&]() -> Status {
    if (settings().gpu_direct == "off") return weft::fail(Code::unsupported, "WEFT_GPU_DIRECT is off");
    transport::GpuDirect* const direct = network->gpu_direct();
    if (!direct)
      return weft::fail(Code::unsupported, "{} moves host memory only (WEFT_NET=ofi may do more)",
                        network->describe());
    for (int world : world_of_) WEFT_TRY(direct->gpu_direct_with(world));
    gpu_direct_ = direct;
    return {};
  };
  const Status offered = offered_by_all();
  if (offered.ok()) {
    log::info("communicator \"{}\": {} reaches GPU memory itself (GPUDirect)", name(), network->describe());
  } else if (settings().gpu_direct == "on") {
    return weft::fail(
        Code::unsupported,
        "WEFT_GPU_DIRECT is on, but communicator \"{}\" cannot have GPUDirect: {}; `auto` stages GPU "
        "memory instead",
        name(), offered.message());
  } else {
    log::info("communicator \"{}\": GPU memory is staged in host memory between nodes: {}", name(),
              offered.message());
  }
  return {};
}

Status Communicator::check_device_call(const Call& call, uint64_t input_bytes, uint64_t output_bytes) const {
  const cuda::Device& device = device_executor_->device();
  const cuda::Driver& d = **cuda::driver();
  auto* const stream = static_cast<cuda::StreamHandle*>(call.cuda_stream);
  const cuda::Scope scope(device);
  cuda::ContextHandle* owner = nullptr;
  if (const int known = d.stream_get_context(stream, &owner); known != cuda::kSuccess)
    return weft::fail(
        Code::invalid_argument,
        "stream is no CUDA stream, or a destroyed one: on a communicator of {} the stream argument is "
        "a cudaStream_t",
        device.describe());
  if (owner != device.context())
    return weft::fail(Code::invalid_argument,
                      "stream belongs to another device or context than this communicator, which is of {}",
                      device.describe());
  if (auto capture = capture_of(call); !capture) return capture.status();
  WEFT_TRY(cuda::check_buffer(device, "sendbuff", call.send, input_bytes));
  return cuda::check_buffer(device, "recvbuff", call.recv, output_bytes);
}

// Asked again at the end of a group: a capture may have begun or ended since the call was noted down.
Result<cuda::Capture> Communicator::capture_of(const Call& call) const {
  if (!call.on_device) return cuda::Capture();
  cuda::Device& device = device_executor_->device();
  const cuda::Scope scope(device);
  auto capture = cuda::capture_of(static_cast<cuda::StreamHandle*>(call.cuda_stream));
  if (!capture || !*capture) return capture;
  if (const Status possible = device.can_be_captured(); !possible)
    return weft::fail(
        Code::unsupported,
        "a CUDA graph is being captured on the stream, but it could not hold an operation of Weft, half "
        "of which is done by the CPU: {}; end the capture before the call (cudaStreamEndCapture) and "
        "begin the next one after it, so that the operation runs between two graphs",
        possible.message());
  return capture;
}

Status Communicator::note_scalar(const void* scalar, Call& call) const {
  const cuda::Scope scope(device_executor_->device());
  auto place = cuda::locate(scalar);
  if (!place) return place.status();
  if (place->kind != cuda::Place::Kind::pageable) {
    call.scalar_is_address = true;
    std::memcpy(call.scalar, &scalar, sizeof scalar);
    return {};
  }
  auto capture = capture_of(call);
  if (!capture) return capture.status();
  if (*capture)
    return weft::fail(
        Code::unsupported,
        "a CUDA graph is being captured on the stream, and the operator's scalar (weftScalarDevice) is in "
        "pageable host memory, which is read at the call: every launch would have the value of now; put it "
        "into GPU or pinned memory, or, if that is meant, create the operator with weftScalarHostImmediate");
  std::memcpy(call.scalar, scalar, device::size_of(call.type));
  return {};
}

Status Communicator::run_on_device(const Call& call) {
  std::optional<cuda::SurplusClaim> claim(std::in_place);
  auto capture = capture_of(call);
  if (!capture) return capture.status();
  Lock lock = context_->lock();
  auto plan = planned(call, *capture ? CallRow() : row_);
  if (!plan) return plan.status();
  if (*capture) {
    lock.unlock();
    CapturedGroup alone;
    WEFT_TRY(alone.add(*this, *capture, plan->call, plan->prepared));
    WEFT_TRY(alone.arrive());
    return alone.wait();
  }
  const bool first_use = is_first_use(plan->call);
  Operation* const op = enroll(plan->call, plan->prepared);
  Status queued = arrive_on_device(*op);
  if (queued.ok()) queued = leave_on_device(*op);
  claim.reset();
  if (queued.ok() && first_use) stay_with(lock, *op, first_use_patience());
  if (queued.ok() && !device_executor_->device().has_memory_operations()) context_->wait(lock, *op);
  if (queued.ok()) queued = op->finished.load(std::memory_order_relaxed) ? op->status : Status();
  context_->release(op);
  return queued;
}

// (lock)
void Communicator::run_captured(const Call& call, const std::shared_ptr<const Prepared>& prepared,
                                std::shared_ptr<CapturedCalls> calls) {
  Operation* const op = enroll(call, prepared);
  op->device->follow(std::move(calls));
  context_->start(*op);
  context_->release(op);
}

// (lock) The stream will say when it has come to the operation.
Status Communicator::arrive_on_device(Operation& op) {
  Status arrived = op.device->arrive_in(static_cast<cuda::StreamHandle*>(op.call.cuda_stream));
  if (!arrived.ok()) fail(arrived.in(describe(op)), true);
  return arrived;
}

// (lock) The stream waits for the operation's end, and the context for the stream.
Status Communicator::leave_on_device(Operation& op) {
  if (op.finished.load(std::memory_order_relaxed)) return op.status;
  Status left = op.device->wait_in(static_cast<cuda::StreamHandle*>(op.call.cuda_stream));
  if (!left.ok()) {
    fail(left.in(describe(op)), true);
    return left;
  }
  context_->await_stream(op);
  if (context_->has_waiters()) return {};
  context_->turn();
  context_->wake_progress();
  return {};
}

// (lock) See first_use.h. An operation of one rank asks for nothing that peers would have to map.
bool Communicator::is_first_use(const Call& call) {
  if (size() == 1 || !device_executor_->device().has_memory_operations()) return false;
  const cuda::Scope scope(device_executor_->device());
  const auto allocation = [](const void* address) -> uint64_t {
    if (!address) return 0;
    const auto place = cuda::locate(address);
    return place && place->shareable ? place->buffer_id : 0;
  };
  return first_use_.note(call.collective, call.count * device::size_of(call.type),
                         {allocation(call.send), allocation(call.recv)});
}

Deadline Communicator::first_use_patience() { return Deadline::in_seconds(kFirstUseSeconds); }

// (lock) The caller of a first use stays, so that he asks the driver for nothing that would keep the
// operation waiting. Not for ever: peers may come late, or only after this rank has called something else.
void Communicator::stay_with(Lock& lock, const Operation& op, const Deadline& patience) {
  while (!op.finished.load(std::memory_order_acquire) && !patience.passed()) {
    lock.unlock();
    std::this_thread::sleep_for(kBetweenLooks);
    lock = context_->lock();
  }
}

}  // namespace weft::engine
