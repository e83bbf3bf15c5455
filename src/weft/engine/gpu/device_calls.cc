#include "engine/gpu/device_calls.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/cuda/deferred_free_claim.h"
#include "engine/gpu/captures.h"
#include "engine/gpu/checked_calls.h"
#include "engine/gpu/device_run.h"
#include "engine/gpu/node_board.h"

namespace weft::engine {
namespace {

constexpr double kFirstUseSeconds = 1;
constexpr auto kBetweenLooks = std::chrono::microseconds(20);

}  // namespace

Status check_device_call(const Communicator& comm, const Call& call, uint64_t input_bytes,
                         uint64_t output_bytes) {
  const cuda::Device& device = comm.on_device().executor->device();
  const cuda::Driver& d = **cuda::driver();
  auto* const stream = static_cast<cuda::StreamHandle*>(call.cuda_stream);
  const cuda::Scope scope(device);
  cuda::ContextHandle* owner = nullptr;
  const int known = d.stream_get_context(stream, &owner);
  if (known == cuda::kInvalidHandle || known == cuda::kInvalidValue || known == cuda::kInvalidContext)
    return fail(
        Code::invalid_argument,
        "stream is no CUDA stream, or a destroyed one: on a communicator of {} the stream argument is "
        "a cudaStream_t",
        device.describe());
  WEFT_TRY(cuda::check(known, "cuStreamGetCtx"));
  if (owner != device.context())
    return fail(Code::invalid_argument,
                "stream belongs to another device or context than this communicator, which is of {}",
                device.describe());
  auto capture = capture_of(comm, call);
  if (!capture) return capture.status();
  CheckedCalls& checked = CheckedCalls::of_this_thread();
  checked.note_capture(*capture);
  const auto check = [&](const char* name, const void* address, uint64_t bytes) -> Status {
    if (bytes == 0) return {};
    const auto place = cuda::check_buffer(device, name, address, bytes);
    if (place) checked.note_buffer(address, *place);
    return place.status();
  };
  WEFT_TRY(check("sendbuff", call.send, input_bytes));
  const cuda::Place* const same = call.recv == call.send && input_bytes >= output_bytes && input_bytes > 0
                                      ? checked.find(call.send)
                                      : nullptr;
  return same ? Status() : check("recvbuff", call.recv, output_bytes);
}

Result<cuda::Capture> capture_of(const Communicator& comm, const Call& call) {
  if (!call.on_device) return cuda::Capture();
  cuda::Device& device = comm.on_device().executor->device();
  const cuda::Scope scope(device);
  auto capture = cuda::capture_of(static_cast<cuda::StreamHandle*>(call.cuda_stream));
  if (!capture || !*capture) return capture;
  if (const Status possible = device.can_be_captured(); !possible)
    return fail(
        Code::unsupported,
        "a CUDA graph is being captured on the stream, but it could not hold an operation of Weft, half "
        "of which is done by the CPU: {}; end the capture before the call (cudaStreamEndCapture) and "
        "begin the next one after it, so that the operation runs between two graphs",
        possible.message());
  return capture;
}

Status note_scalar(const Communicator& comm, const void* scalar, Call& call) {
  const cuda::Scope scope(comm.on_device().executor->device());
  auto place = cuda::locate(scalar);
  if (!place) return place.status();
  if (place->kind != cuda::Place::Kind::pageable) {
    call.scalar_is_address = true;
    std::memcpy(call.scalar, &scalar, sizeof scalar);
    return {};
  }
  auto capture = capture_of(comm, call);
  if (!capture) return capture.status();
  if (*capture)
    return fail(
        Code::unsupported,
        "a CUDA graph is being captured on the stream, and the operator's scalar (weftScalarDevice) is in "
        "pageable host memory, which is read at the call: every launch would have the value of now; put it "
        "into GPU or pinned memory, or, if that is meant, create the operator with weftScalarHostImmediate");
  std::memcpy(call.scalar, scalar, device::size_of(call.type));
  return {};
}

Status run_on_device(Communicator& comm, const Call& call) {
  Context& context = comm.context();
  std::optional<cuda::DeferredFreeClaim> claim(std::in_place);
  const cuda::Scope scope(comm.on_device().executor->device());
  CheckedCalls& checked = CheckedCalls::of_this_thread();
  const ForgetCheckedCalls forget;
  const std::optional<cuda::Capture> told = checked.take_capture();
  Result<cuda::Capture> capture = told ? *told : capture_of(comm, call);
  if (!capture) return capture.status();
  if (*capture) {
    const Result<bool> on_path = comm.captures()->capture_on_path(*capture, call);
    if (!on_path || *on_path) return on_path.status();
  }
  Lock lock = context.lock();
  if (comm.captures()) comm.captures()->check();
  if (!*capture)
    if (Operation* const op = enroll_on_path(comm, call)) {
      const bool first_use = may_call_driver(comm, call, op);
      Status queued = arrive_on_device(lock, *op);
      if (queued.ok()) queued = leave_on_device(lock, *op);
      claim.reset();
      if (queued.ok() && first_use) stay_with(lock, *op, first_use_deadline());
      context.operations().release(op);
      return queued;
    }
  const auto tables = comm.tables_for(call, *capture ? CallStreak() : comm.operations().streak());
  if (!tables) return tables.status();
  if (*capture) {
    const std::shared_ptr<const PlanTables> kept = **tables;
    lock.unlock();
    CapturedGroup alone;
    WEFT_TRY(alone.add(comm, *capture, call, kept));
    WEFT_TRY(alone.arrive());
    return alone.wait();
  }
  const bool first_use = may_call_driver(comm, call, nullptr);
  Operation* const op = comm.enroll(call, **tables);
  Status queued = arrive_on_device(lock, *op);
  if (queued.ok()) queued = leave_on_device(lock, *op);
  claim.reset();
  if (queued.ok() && first_use) stay_with(lock, *op, first_use_deadline());
  if (queued.ok() && !has_memory_operations(comm)) {
    context.waiting().wait(lock, *op);
    hold_stream(lock, *op);
  }
  if (queued.ok()) queued = op->end.finished.load(std::memory_order_relaxed) ? op->end.status : Status();
  context.operations().release(op);
  return queued;
}

// Handles tell streams apart, but for those of default streams: each device has one, and each thread has one
// of each device.
uint64_t number_of_stream(const cuda::Device& device, const void* stream) {
  static std::atomic<uint64_t> threads{0};
  static thread_local const uint64_t thread = ++threads;
  constexpr uint64_t kLegacy = 1, kOfThread = 2;
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  if (handle > kOfThread) return handle;
  const uint64_t of_device = static_cast<uint64_t>(device.ordinal()) << 8;
  return handle == kOfThread ? thread << 32 | of_device | kOfThread : of_device | kLegacy;
}

Status fail_on_same_stream(int other) {
  return fail(
      Code::invalid_usage,
      "rank {} has called it on the same CUDA stream, where each would wait for the other and one could "
      "not start: give each rank a stream of its own, or set WEFT_CUDA_KERNEL=off and "
      "WEFT_CUDA_COPY_BYTES=0",
      other);
}

std::shared_ptr<const StreamPath::Served> find_on_path(Communicator& comm, StreamPath& path,
                                                       const Call& call) {
  const plan::Request request = comm.plans().request_for(call);
  const StreamPath::Prices prices{comm.machine(), [&]() WEFT_REQUIRES(context_lock) {
                                    const auto us = comm.plans().predict_us(request, 1, comm.machine());
                                    return us ? *us : 0;
                                  }};
  return path.find_or_make(call, request, prices);
}

Operation* enroll_on_path(Communicator& comm, const Call& call) {
  if (!comm.failure().ok()) return nullptr;
  for (const std::shared_ptr<StreamPath>& path : comm.on_device().paths) {
    auto served = find_on_path(comm, *path, call);
    if (!served) continue;
    Operation* const op = comm.enroll(call, served->tables);
    comm.on_device().board->note_call(op->number, op->signature);
    op->device->follow(path, std::move(served));
    return op;
  }
  return nullptr;
}

void run_captured(Communicator& shadow, const PlannedCall& planned, std::shared_ptr<CapturedCalls> calls) {
  Operation* const op = shadow.enroll(planned.call, planned.tables);
  op->device->follow(std::move(calls));
  shadow.context().start(*op);
  shadow.context().operations().release(op);
}

Status arrive_on_device(Lock& lock, Operation& op) {
  Status arrived = op.device->arrive_in(lock, static_cast<cuda::StreamHandle*>(op.call.cuda_stream));
  if (!arrived.ok()) op.comm->fail(arrived.in(describe(op)), true);
  return arrived;
}

Status leave_on_device(Lock& lock, Operation& op) {
  Status left = op.device->wait_in(lock, static_cast<cuda::StreamHandle*>(op.call.cuda_stream));
  if (op.end.finished.load(std::memory_order_relaxed)) return op.end.status;
  if (!left.ok()) {
    op.comm->fail(left.in(describe(op)), true);
    return left;
  }
  Context& context = *op.context;
  context.device_operations().await_stream(op);
  if (context.sleepers().any_waiting()) return {};
  if (!op.device->on_path().path) context.turn();
  context.waiting().wake_progress();
  return {};
}

bool has_memory_operations(const Communicator& comm) {
  return comm.on_device().executor->device().has_memory_operations();
}

void hold_stream(Lock& lock, const Operation& op) {
  if (op.end.status.ok() || !op.started || has_memory_operations(*op.comm)) return;
  DeviceExecutor& executor = op.device->executor();
  const cuda::Scope scope(executor.device());
  const std::vector<cuda::Ticket> left = executor.mark_queues();
  Status held;
  lock.without([&] {
    for (const cuda::Ticket& ticket : left)
      if (held.ok()) held = ticket.hold(static_cast<cuda::StreamHandle*>(op.call.cuda_stream));
  });
  if (!held.ok()) log::warn("a stream does not wait for an operation that has failed: {}", held.message());
}

// An operation of one rank asks for nothing that peers would have to map.
bool may_call_driver(Communicator& comm, const Call& call, const Operation* on_path) {
  if (on_path) {
    const DeviceRun::OnPath& way = on_path->device->on_path();
    if (!way.path->may_take_memory(*way.served)) return false;
  }
  if (comm.size() == 1 || !has_memory_operations(comm)) return false;
  const cuda::Scope scope(comm.on_device().executor->device());
  const auto allocation = [](const void* address) -> uint64_t {
    if (!address) return 0;
    if (const cuda::Place* const known = CheckedCalls::of_this_thread().find(address))
      return known->shareable ? known->buffer_id : 0;
    const auto place = cuda::locate(address);
    return place && place->shareable ? place->buffer_id : 0;
  };
  return comm.on_device().first_use.note(call.collective, call.count * device::size_of(call.type),
                                         {allocation(call.send), allocation(call.recv)});
}

Deadline first_use_deadline() { return Deadline::in_seconds(kFirstUseSeconds); }

// Not for ever: peers may come late, or only after this rank has called something else.
void stay_with(Lock& lock, const Operation& op, const Deadline& deadline) {
  while (!op.end.finished.load(std::memory_order_acquire) && !deadline.passed()) {
    lock.without([] { std::this_thread::sleep_for(kBetweenLooks); });
  }
}

}  // namespace weft::engine
