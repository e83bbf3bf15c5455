#include "engine/context/context.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory_watch.h"
#include "base/settings.h"
#include "bootstrap/unique_id.h"
#include "engine/context/progress.h"
#include "engine/gpu/captured_calls.h"
#include "engine/gpu/device_run.h"
#include "engine/run/communicator.h"
#include "engine/run/interpreter.h"
#include "engine/run/stream.h"

namespace weft::engine {
namespace {

// How many events may pass until the clock is read to see whether a check is due; a power of two.
constexpr uint64_t kEventsPerCheck = 256;
// How long after a failure here peers may still read from memory of the operation.
constexpr int64_t kNewsTakeNs = 2'000'000'000;

}  // namespace

// ---- Joining and leaving a job

Context::Context(uint64_t job, std::unique_ptr<bootstrap::Bootstrap> bootstrap,
                 std::unique_ptr<Fabric> fabric)
    : job_(job),
      bootstrap_(std::move(bootstrap)),
      fabric_(std::move(fabric)),
      workspace_(fabric_->local()),
      device_operations_(*this),
      operations_(*this),
      lost_memory_(operations_),
      inbox_(*this),
      waiting_(*this),
      failures_(*this) {
  MemoryWatch::install();
}

Result<std::shared_ptr<Context>> Context::join(const bootstrap::UniqueId& id, int rank, int ranks,
                                               const std::string& host_id, int cuda_device,
                                               Deadline deadline) {
  // The secret alone names the job. Ranks may resolve the root's name to different addresses.
  const auto secret = bootstrap::read_unique_id(id);
  if (!secret) return secret.status();
  const uint64_t job = hash_64({reinterpret_cast<const char*>(secret->secret.data()), secret->secret.size()});
  auto joined = bootstrap::Bootstrap::join(id, rank, ranks, deadline);
  if (!joined) return joined.status();
  log::add_rank(rank);
  auto fabric = Fabric::open(**joined, host_id, cuda_device, deadline);
  if (!fabric) return fabric.status();
  return std::make_shared<Context>(job, joined.take(), fabric.take());
}

Status Context::begin(Deadline deadline) {
  auto trace = Trace::open(*fabric_, *bootstrap_, deadline);
  if (!trace) return trace.status();
  trace_ = trace.take();
  WEFT_TRY(sleepers_.open(fabric_->epoll_fd()));
  // The bootstrap is stopped before the context goes.
  WEFT_TRY(bootstrap_->start({
      .on_dead = [this](int dead, const Status& why) { failures_.on_dead(dead, why); },
      .on_failed = [this](int from, uint32_t comm,
                          const std::string& why) { failures_.on_failed(from, comm, why); },
      .on_data_connection =
          [this](int from, uint32_t purpose, UniqueFd connection) {
            fabric_->accept(from, purpose, std::move(connection));
          },
      .on_question = [this](int from, uint32_t comm,
                            uint32_t number) { return failures_.on_question(from, comm, number); },
  }));
  const Result<ProgressThread*> home = ProgressEngine::instance().attach(*this);
  if (!home) return home.status();
  waiting_.set_home(*home);
  return {};
}

Context::~Context() {
  if (waiting_.home()) ProgressEngine::instance().detach(*this, waiting_.home());
  {
    const MemoryWatch watch = lost_memory_.watch();
    if (Status flushed = fabric_->flush(Deadline::in_seconds(5)); !flushed)
      log::warn("leaving with data unsent: {}", flushed.message());
  }
  bootstrap_->stop();
  failures_.inquiries().close();  // there is no communicator left to fail
  fabric_.reset();
  bootstrap_.reset();
  operations_.clear();  // before what its operations have used
}

// ---- Communicators

Communicator* Context::find_communicator(uint32_t id) const {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : found->second;
}

// ---- Beginning and end of operations

void Context::start(Operation& op) {
  const MemoryWatch watch = lost_memory_.watch();
  if (op.end.finished.load(std::memory_order_relaxed)) return;  // cancelled while it was queued
  if (Record* record = op.own_record())
    record->started = op.call.stream || op.device ? ticks() : record->queued;
  operations_.enter(op);
  if (!op.comm->failure().ok()) return finish(op, op.comm->failure());
  if (Status prepared = op.device ? op.device->prepare() : workspace_.prepare(op); !prepared)
    return failures_.fail(op, prepared);
  if (MemoryWatch::lost()) [[unlikely]]
    return failures_.act_on_lost_memory();
  op.progress.reset_arrivals(*op.tables);
  op.progress.reset_steps(*op.tables, trace_ ? ticks() : 0);
  if (!inbox_.empty()) inbox_.deliver_early(op);
  if (op.call.one_sided) [[unlikely]]
    op.comm->buffers().windows.began(op);
  advance_one(op);
}

int Context::advance_one(Operation& op) {
  const Result<bool> moved =
      op.health.unreachable ? Result<bool>(false) : advance(op.comm->environment(), op);
  if (MemoryWatch::lost()) [[unlikely]] {
    failures_.act_on_lost_memory();
    if (op.end.finished.load(std::memory_order_relaxed)) return 1;
  }
  if (op.health.unreachable) [[unlikely]] {
    failures_.on_unreachable(op);
    return 0;
  }
  if (!moved) {
    failures_.fail(op, moved.status());
  } else if (complete(op)) {
    finish(op, Status());
  } else {
    return *moved ? 1 : 0;
  }
  return 1;
}

// From here on an active operation touches no memory.
void Context::end_active(Operation& op, Status& status) {
  if (!status.ok() && op.progress.puts_open > 0)
    for (transport::Transport* t : {fabric_->local(), fabric_->between_nodes()})
      if (t)
        t->forget(op.progress.completions.data(),
                  op.progress.completions.data() + op.progress.completions.size());
  op.exposures.readings.clear();
  op.exposures.withdraw(!status.ok());
  if (op.device) {
    op.device->end(status.ok());
    if (!status.ok()) (void)device_operations_.settle_releases();
  }
  op.exposures.mappings.clear();
  if (op.memory.staged_output.data && status.ok()) {
    Workspace::bring_back(op);
    if (Status gone = LostMemory::of(op); !gone.ok()) status = failures_.fail_later(op, gone);
  }
  workspace_.give_back(op, status.ok());
  left_with_network_ |= op.tables->between_nodes;
  operations_.leave(op);
}

void Context::finish(Operation& op, Status status) {
  if (op.end.finished.load(std::memory_order_relaxed)) return;
  if (op.started) end_active(op, status);
  if (Record* record = op.own_record()) {
    record->outcome = status.code();
    record->done = ticks();
    if (trace_ && op.started) trace_->operation(op);
  }
  if (op.device) {
    op.device->release_stream();
    if (!status.ok() && !op.started) (void)device_operations_.settle_releases();
  }
  op.comm->operations().remove(op);
  if (op.call.one_sided && status.ok()) op.comm->buffers().windows.ended(op);
  op.end.status = std::move(status);
  // The stream lets go before a waiter can see the end and destroy it.
  const bool leaves_stream = op.call.stream != nullptr;
  if (leaves_stream) op.call.stream->on_finished(op);
  op.end.finished.store(true, std::memory_order_release);
  sleepers_.operation_ended(op);
  if (leaves_stream) operations_.release(&op);
  if (op.started) operations_.release(&op);
}

void Context::fail_operations(Communicator& comm, const Status& why) {
  comm.gates().shut();  // before anybody gets buffers back
  for (Operation* op : std::vector<Operation*>(comm.operations().unfinished()))
    finish(*op, why.message().starts_with(describe(*op)) ? why : why.in(describe(*op)));
  inbox_.drop(comm.id());  // nobody will ask for them
}

// ---- Driving

int Context::take_submissions() {
  Submissions::Batch batch = submissions_.take();
  const size_t taken = batch.operations.size() + batch.captured.size();
  for (Operation* op : batch.operations) {
    start(*op);
    operations_.release(op);
  }
  submissions_.recycle(std::move(batch.operations));
  for (const auto& calls : batch.captured) calls->start();
  return static_cast<int>(taken);
}

int Context::turn() {
  const MemoryWatch watch = lost_memory_.watch();
  int events = 0;
  if (submissions_.any()) events += take_submissions();
  if (!device_operations_.empty()) events += device_operations_.turn();
  const bool network =
      operations_.uses_network() || window_traffic_.listens() || unsent() || quiet_network_is_due();
  const Result<int> polled = fabric_->poll(inbox_, network);
  if (MemoryWatch::lost()) [[unlikely]]
    failures_.act_on_lost_memory();
  if (!polled) {
    for (auto& [id, comm] : std::unordered_map(communicators_)) comm->fail(polled.status(), true);
    return 1;
  }
  events += *polled;
  if (failures_.any_pending()) failures_.act_on_pending();
  if (window_traffic_.any_noted()) [[unlikely]]
    for (Windows* windows : window_traffic_.take_noted()) windows->begin_noted();
  // Counted now: the time of grace of an operation that is found unreachable below begins after them.
  const uint64_t before = std::exchange(events_, events_ + static_cast<uint64_t>(events));
  int moved = 0;
  // The oldest operation first: its puts travel before those of younger ones.
  const std::vector<Operation*>& active = operations_.active();
  for (size_t i = 0; i < active.size();) {
    Operation& op = *active[i];
    if (op.progress.may_move) moved += advance_one(op);
    if (i < active.size() && active[i] == &op) ++i;  // else it has ended, and what is behind it moved up
  }
  events_ += static_cast<uint64_t>(moved);
  // Where something always moves, no waiting thread looks at the clock.
  if ((before ^ events_) / kEventsPerCheck != 0) [[unlikely]]
    check_if_due(now_ns());
  return events + moved;
}

void Context::check_deadlines(int64_t now_ns) {
  ScratchPool& scratch = workspace_.scratch();
  if (scratch.holds_retired() && !fabric_->reads_forgotten()) scratch.empty_retired(now_ns - kNewsTakeNs);
  failures_.check(now_ns);
  if (!device_operations_.empty()) device_operations_.check(now_ns);
}

}  // namespace weft::engine
