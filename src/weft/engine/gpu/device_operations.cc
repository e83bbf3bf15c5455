#include "engine/gpu/device_operations.h"

#include <algorithm>
#include <utility>

#include "base/settings.h"
#include "engine/context/context.h"
#include "engine/failure/verdict.h"
#include "engine/gpu/captures.h"
#include "engine/gpu/device_executor.h"
#include "engine/gpu/device_run.h"
#include "engine/gpu/node_board.h"
#include "engine/run/communicator.h"

namespace weft::engine {

DeviceOperations::DeviceOperations(Context& context) : context_(context) {}

DeviceOperations::~DeviceOperations() {
  for (auto& [ordinal, executor] : executors_)
    if (executor) DeviceExecutor::close(std::move(executor));
}

Result<DeviceExecutor*> DeviceOperations::executor(int ordinal) {
  auto& executor = executors_[ordinal];
  if (!executor) {
    auto opened = DeviceExecutor::open(ordinal);
    if (!opened) return opened.status();
    executor = opened.take();
  }
  return executor.get();
}

const device::cuda::Device* DeviceOperations::only_device() const {
  const bool one = executors_.size() == 1 && executors_.begin()->second;
  return one ? &executors_.begin()->second->device() : nullptr;
}

void DeviceOperations::await_stream(Operation& op) {
  op.retain();
  awaiting_.push_back(&op);
  // A thread that sleeps does not know yet how often to look at a stream.
  if (context_.sleepers().taken()) context_.sleepers().ring();
}

int DeviceOperations::start_awaiting() {
  int events = 0;
  // In the order of the calls, whatever a start or a failure does to the list. A stream may come to two calls
  // of a group between the looks at them: the second one does not begin before the first. An earlier call
  // that is still in the list has not begun.
  for (size_t i = 0; i < awaiting_.size();) {
    Operation* const op = awaiting_[i];
    const bool over = op->end.finished.load(std::memory_order_relaxed);
    const bool on_path = !over && op->device->on_path().path != nullptr;
    const bool behind =
        std::any_of(awaiting_.begin(), awaiting_.begin() + static_cast<std::ptrdiff_t>(i),
                    [op](const Operation* earlier) {
                      return earlier->device->stream_number() == op->device->stream_number() &&
                             !earlier->device->on_path().path;
                    });
    Result<bool> here = over      ? Result<bool>(true)
                        : on_path ? is_done_by_its_path(*op)
                        : behind  ? Result<bool>(false)
                                  : op->device->stream_is_here();
    if (here && !*here) {
      events += start_proxy(*op);
      ++i;
      continue;
    }
    awaiting_.erase(awaiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (here && !over) op->device->on_path().ended = true;
    if (!here) op->comm->fail(here.status().in(describe(*op)), true);
    else if (!op->started) context_.start(*op);
    context_.operations().release(op);
    ++events;
  }
  return events;
}

// What crosses nodes is done while the stream does the rest.
int DeviceOperations::start_proxy(Operation& op) {
  if (op.started || !op.device->on_path().has_proxy() || !op.device->on_path().has_begun()) return 0;
  context_.start(op);
  return 1;
}

// Nobody sends a message on a path inside a node. So whether all ranks have called the same shows when the
// operation has ended, or does not end. Verdict asks the ranks, and fails the communicator.
Result<bool> DeviceOperations::is_done_by_its_path(Operation& op) {
  if (op.health.verdict_pending) return false;
  Result<bool> done = op.device->stream_is_here();
  if (done && !*done) return done;
  NodeBoard& board = *op.comm->on_device().board;
  if (done) board.note_begun(op.number);
  const auto compared =
      board.compare(op.number, op.signature, done ? op.device->on_path().served->partners : 0);
  if (compared.differing >= 0) {
    Verdict::on_mismatch(context_, op, compared.differing);
    return false;
  }
  if (done && compared.behind) return false;
  return done;
}

// As Failures::check() does for operations that have started.
void DeviceOperations::check_on_path(Operation& op, int64_t now_ns) {
  op.comm->on_device().board->note_begun(op.number);
  if (op.started) return;
  const auto after = [now_ns](double seconds) { return now_ns + static_cast<int64_t>(seconds * 1e9); };
  if (op.end.deadline_ns == 0) {
    op.end.deadline_ns = after(op.end.timeout_s);
    op.health.next_check_ns = std::min(op.end.deadline_ns, after(settings().stall_check_s));
  }
  if (now_ns >= op.health.next_check_ns) Verdict::on_stall(context_, op, now_ns);
}

// An operation that its stream has not reached is not active, and may rightly wait for long. But a stream of
// a device that has failed never comes; and who destroys a communicator is not to wait for ever.
void DeviceOperations::check(int64_t now_ns) {
  for (const auto& [id, comm] : context_.communicators())
    if (comm->captures()) comm->captures()->check();
  for (Operation* op : std::vector<Operation*>(awaiting_)) {
    if (op->end.finished.load(std::memory_order_relaxed)) continue;
    Communicator& comm = *op->comm;
    const DeviceRun::OnPath& on_path = op->device->on_path();
    const bool has_begun = on_path.path && on_path.has_begun();
    if (const Status alive = op->device->executor().alive(now_ns); !alive.ok())
      comm.fail(alive.in("before its CUDA stream has come to it").in(describe(*op)), true);
    else if (!has_begun && comm.finalized_by_ns() > 0 && now_ns >= comm.finalized_by_ns())
      comm.fail(
          fail(Code::timeout,
               "{}: the communicator is finalized or destroyed, but the call's CUDA stream has not come to "
               "it for {} s: synchronize the stream before, or abort the communicator",
               describe(*op), comm.options().timeout_s),
          true);
    else if (has_begun) check_on_path(*op, now_ns);
  }
}

int DeviceOperations::settle_releases() {
  const bool had = std::exchange(has_releases_, false);
  int settled = 0;
  for (auto& [ordinal, executor] : executors_) {
    if (!executor) continue;
    if (executor->has_releases()) settled += executor->settle();
    has_releases_ |= executor->has_releases();
  }
  if (has_releases_ && !had) context_.waiting().wake_progress();
  return settled;
}

}  // namespace weft::engine
