// What a context does for operations on GPU memory, beside what it does for all: they wait for their CUDA
// stream before they start, and nothing but looking tells how far the device is. The rest is in context.cc.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/settings.h"
#include "engine/run/communicator.h"
#include "engine/context/context.h"
#include "engine/gpu/device_run.h"
#include "engine/run/interpreter.h"

namespace weft::engine {

Operation::Operation() = default;
Operation::~Operation() = default;

Result<DeviceExecutor*> Context::device_executor(int ordinal) {
  auto& executor = device_executors_[ordinal];
  if (!executor) {
    auto opened = DeviceExecutor::open(ordinal);
    if (!opened) return opened.status();
    executor = opened.take();
  }
  return executor.get();
}

void Context::await_stream(Operation& op) {
  op.retain();
  awaiting_.push_back(&op);
  if (sleeper_) ring_sleeper();  // who sleeps does not know yet how often to look at a stream
}

int Context::start_awaiting() {
  int events = 0;
  // In the order of the calls, whatever a start or a failure does to the list.
  for (size_t i = 0; i < awaiting_.size();) {
    Operation* const op = awaiting_[i];
    const bool over = op->finished.load(std::memory_order_relaxed);
    Result<bool> here = over ? Result<bool>(true) : op->device->stream_is_here();
    if (here && !*here) {
      ++i;
      continue;
    }
    awaiting_.erase(awaiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!here) op->comm->fail(here.status().in(op->comm->describe(*op)), true);
    else start(*op);
    release(op);
    ++events;
  }
  return events;
}

// An operation that its stream has not reached is not active, and may rightly wait for long. But a stream of
// a device that has failed never comes; and who destroys a communicator is not to wait for ever.
void Context::check_awaiting(int64_t now) {
  for (Operation* op : std::vector<Operation*>(awaiting_)) {
    if (op->finished.load(std::memory_order_relaxed)) continue;
    Communicator& comm = *op->comm;
    if (const Status alive = op->device->executor().alive(now); !alive.ok())
      comm.fail(alive.in("before its CUDA stream has come to it").in(comm.describe(*op)), true);
    else if (comm.finalized_by_ns() > 0 && now >= comm.finalized_by_ns())
      comm.fail(
          fail(Code::timeout,
               "{}: the communicator is finalized or destroyed, but the call's CUDA stream has not come to "
               "it for {} s: synchronize the stream before, or abort the communicator",
               comm.describe(*op), comm.options().timeout_s),
          true);
  }
}

int Context::settle_leftovers() {
  const bool had = std::exchange(has_leftovers_, false);
  int settled = 0;
  for (auto& [ordinal, executor] : device_executors_) {
    if (!executor) continue;
    if (executor->has_leftovers()) settled += executor->settle();
    has_leftovers_ |= executor->has_leftovers();
  }
  if (has_leftovers_ && !had) wake_progress();
  return settled;
}

int Context::nap_us() const {
  if (watches_device()) return settings().cuda_poll_us;
  return fabric_->nap_ms() < 0 ? -1 : fabric_->nap_ms() * 1000;
}

// False where the notification arrives later, or never.
bool Context::learn(Operation& op, int peer, const transport::Envelope& envelope, uint32_t number,
                    const void* payload) {
  const int32_t handle = op.prepared->handle_of_notification[number];
  if (handle < 0 || !payload) return true;
  Learned& learned = op.learned[handle];
  const auto mixed = [&](const char* theirs, const char* ours) {
    fail_later(*op.comm,
               fail(Code::mismatch,
                    "{}: rank {} has called it on {} memory, rank {} on {} memory: create the "
                    "communicator with a device on all ranks, or on none",
                    op.comm->describe(op), op.comm->rank_of_world(peer), theirs, op.comm->rank(), ours));
    return true;
  };
  const auto kind = static_cast<MessageKind>(envelope.kind);
  // Nothing of a rank that differs is touched: it gives up, and its memory may be gone.
  if (op.device && kind == MessageKind::expose) return mixed("host", "GPU");
  if (!op.device && kind != MessageKind::expose) return mixed("GPU", "host");
  if (kind != MessageKind::expose_device) {
    if (envelope.bytes != sizeof(transport::RemoteBuffer)) return true;
    std::memcpy(&learned.buffer, payload, sizeof learned.buffer);
    learned.mapped = nullptr;
    if (!fabric_->is_local(peer)) return true;
    transport::MappedBuffer reached = fabric_->local()->map(peer, learned.buffer);
    learned.mapped = reached.address;
    if (reached.mapping) op.mappings.push_back(std::move(reached.mapping));
    learned.door = op.comm->door_of(op.comm->rank_of_world(peer));
    return true;
  }
  if (envelope.bytes != sizeof(cuda::SharedMemory)) {
    fail_later(*op.comm,
               fail(Code::mismatch,
                    "{}: rank {} describes its GPU memory in {} bytes, this library in {}: use one version "
                    "of libweft on all ranks",
                    op.comm->describe(op), op.comm->rank_of_world(peer), envelope.bytes,
                    sizeof(cuda::SharedMemory)));
    return true;
  }
  cuda::SharedMemory memory;
  std::memcpy(&memory, payload, sizeof memory);
  const Result<bool> learned_now = op.device->learn(handle, number, memory);
  if (learned_now) return *learned_now;
  fail_later(*op.comm, learned_now.status().in(
                           fmt::format("{}: rank {}", op.comm->describe(op), op.comm->rank_of_world(peer))));
  return true;
}

}  // namespace weft::engine
