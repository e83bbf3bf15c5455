#include "engine/context/context.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory_watch.h"
#include "base/settings.h"
#include "bootstrap/unique_id.h"
#include "engine/context/progress.h"
#include "engine/context/wait_policy.h"
#include "engine/gpu/captured_calls.h"
#include "engine/gpu/device_run.h"
#include "engine/record/dump.h"
#include "engine/run/communicator.h"
#include "engine/run/interpreter.h"
#include "engine/run/stream.h"

namespace weft::engine {
namespace {

constexpr size_t kReasonBytes = 512;  // of why a rank cannot go on, as others read it

// How often a driver that finds nothing to do looks at deadlines, and its longest sleep.
constexpr int64_t kCheckNs = 100'000'000;
// How many events may pass until the clock is read to see whether a check is due; a power of two.
constexpr uint64_t kEventsPerCheck = 256;
constexpr int kWatchMs = 100;
constexpr int kYieldsForOthers = 100;
constexpr std::chrono::microseconds kManyNap{50};
// An operation that moves no more than this is short. A wait for it polls for kLingerNs after each event.
constexpr uint64_t kShortBytes = 64 << 10;
constexpr int64_t kLingerNs = 500'000;
// How long after a failure here peers may still read from memory of the operation.
constexpr int64_t kNewsTakeNs = 2'000'000'000;

bool is_short(const Operation& op) {
  return op.memory.bytes[0] + op.memory.bytes[1] + op.memory.bytes[2] <= kShortBytes;
}

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
  WEFT_TRY(open_trace(deadline));
  WEFT_TRY(sleepers_.open(epoll_fd()));
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
  home_ = ProgressEngine::instance().attach(*this);
  return {};
}

// The first rank on a node that writes a trace starts the file, before any rank appends to it.
Status Context::open_trace(Deadline deadline) {
  const auto writes = [this](int r) { return fabric_->traces(r); };
  bool anybody = false;
  for (int r = 0; r < ranks(); ++r) anybody |= writes(r);
  if (!anybody) return {};
  const int node = fabric_->layout().node_of(rank());
  const auto& here = fabric_->layout().on_node(node);
  const auto first_here = std::find_if(here.begin(), here.end(), writes);
  const bool first = first_here != here.end() && *first_here == rank();
  const Status started = first ? Trace::start() : Status();
  // Every rank learns why one could not start the file.
  std::array<char, kReasonBytes> reason{};
  started.message().copy(reason.data(), reason.size() - 1);
  const auto met = bootstrap_->all_gather(std::as_bytes(std::span(reason)), deadline);
  WEFT_TRY(started);
  if (!met) return met.status();
  for (int r = 0; r < ranks(); ++r) {
    const char* const theirs =
        reinterpret_cast<const char*>(met->data()) + kReasonBytes * static_cast<size_t>(r);
    const std::string_view why(theirs, strnlen(theirs, kReasonBytes));
    if (!why.empty()) return fail(Code::remote_error, "rank {} reports: {}", r, why);
  }
  auto trace = Trace::open(rank(), node);
  if (!trace) return trace.status();
  trace_ = trace.take();
  return {};
}

Context::~Context() {
  if (home_) ProgressEngine::instance().detach(*this, home_);
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

void Context::attach(Communicator& comm) { communicators_[comm.id()] = &comm; }

void Context::detach(Communicator& comm) {
  communicators_.erase(comm.id());
  inbox_.retire(comm.id());
  failures_.forget(comm);
}

Communicator* Context::find_communicator(uint32_t id) const {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : found->second;
}

void Context::dump_all() {
  const Lock lock = this->lock();
  for (auto& [id, comm] : communicators_) {
    if (comm->is_shadow()) continue;
    if (std::string path = dump_to_directory(*comm); !path.empty()) log::warn("flight recorder: {}", path);
  }
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
  advance_one(op);
}

int Context::advance_one(Operation& op) {
  if (op.health.unreachable) [[unlikely]] {
    if (!op.health.grace.over(now_ns(), events_)) return 0;
    failures_.fail(op, op.health.why_unreachable);
    return 1;
  }
  const Result<bool> moved = advance(op.comm->environment(), op);
  if (MemoryWatch::lost()) [[unlikely]] {
    failures_.act_on_lost_memory();
    if (op.end.finished.load(std::memory_order_relaxed)) return 1;
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
  op.exposures.withdraw();
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
  if (op.device) op.device->release_stream();
  op.comm->operation_ended(op);
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
  comm.shut_gate();  // before anybody gets buffers back
  for (Operation* op : std::vector<Operation*>(comm.operations()))
    finish(*op, why.message().starts_with(comm.describe(*op)) ? why : why.in(comm.describe(*op)));
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
  const bool network = operations_.uses_network() || unsent() || quiet_network_is_due();
  const Result<int> polled = fabric_->poll(inbox_, network);
  if (MemoryWatch::lost()) [[unlikely]]
    failures_.act_on_lost_memory();
  if (!polled) {
    for (auto& [id, comm] : std::unordered_map(communicators_)) comm->fail(polled.status(), true);
    return 1;
  }
  events += *polled;
  if (failures_.any_pending()) failures_.act_on_pending();
  // The oldest operation first: its puts travel before those of younger ones.
  const std::vector<Operation*>& active = operations_.active();
  for (size_t i = 0; i < active.size();) {
    Operation& op = *active[i];
    if (op.progress.may_move) events += advance_one(op);
    if (i < active.size() && active[i] == &op) ++i;  // else it has ended, and what is behind it moved up
  }
  const uint64_t before = std::exchange(events_, events_ + static_cast<uint64_t>(events));
  // Where something always moves, no waiting thread looks at the clock.
  if ((before ^ events_) / kEventsPerCheck != 0) [[unlikely]]
    if (const int64_t now = now_ns(); now - failures_.checked_ns() > kCheckNs) check_deadlines(now);
  return events;
}

void Context::check_deadlines(int64_t now_ns) {
  ScratchPool& scratch = workspace_.scratch();
  if (scratch.holds_retired() && !fabric_->reads_forgotten()) scratch.empty_retired(now_ns - kNewsTakeNs);
  failures_.check(now_ns);
  if (!device_operations_.empty()) device_operations_.check(now_ns);
}

void Context::wake_progress() {
  due_timer_.disarm();
  ProgressEngine::wake(home_);
}

// Back-to-back calls would wake the progress thread at each of them. The timer wakes it for the first.
void Context::hand_on() {
  const bool only_due = fabric_->due_ns() != 0 && operations_.empty() && device_operations_.empty() &&
                        !failures_.any_death() && !submissions_.any(std::memory_order_seq_cst);
  if (!only_due) return wake_progress();
  if (!due_timer_.arm()) return;
  ProgressEngine::wake(home_);
  if (submissions_.any(std::memory_order_seq_cst)) due_timer_.disarm();  // since we looked
}

// ---- Waiting

void Context::wait(Lock& lock, Operation& op, Deadline deadline) {
  sleepers_.begin_wait();
  const bool crowded = fabric_->oversubscribed();
  const int64_t spin_ns = crowded ? 0 : int64_t{settings().spin_us} * 1000;
  WaitPolicy policy({.spin_ns = spin_ns,
                     .yield_ns = spin_ns + int64_t{settings().yield_us} * 1000,
                     .crowded = crowded,
                     .looks = crowded ? WaitPolicy::kCrowdedLooks : WaitPolicy::kLooks,
                     .linger_ns = is_short(op) ? kLingerNs : 0});
  const bool timed = deadline.at_ns() != INT64_MAX;
  while (!op.end.finished.load(std::memory_order_acquire)) {
    if (timed && deadline.passed()) break;
    if (turn() > 0) {
      policy.found();
      continue;
    }
    if (policy.found_nothing()) {
      const int64_t now = now_ns();
      policy.tell(now, rings());
      if (now - failures_.checked_ns() > kCheckNs) check_deadlines(now);
      if (policy.over()) {
        sleep(lock, op, deadline);
        continue;
      }
    }
    if (policy.spins() && !lock_is_wanted()) {
      if (policy.pauses()) cpu_relax();
    } else {
      lock.without([this] {
        int yields = 0;  // whoever wants the lock has to wake up first
        do sched_yield();
        while (lock_is_wanted() && ++yields < kYieldsForOthers);
      });
    }
  }
  if (sleepers_.end_wait() && busy()) wake_progress();
}

bool Context::begin_sleep(const Operation* op) {
  if (sleepers_.taken() || !fabric_->prepare_sleep()) return false;
  sleepers_.announce();
  if (submissions_.any(std::memory_order_seq_cst)) {
    sleepers_.withdraw();
    fabric_->finish_sleep();
    return false;
  }
  sleepers_.begin_sleep(op);
  return true;
}

void Context::end_sleep() {
  sleepers_.end_sleep();
  fabric_->finish_sleep();
}

int Context::nap_us() const {
  if (watches_device()) return settings().cuda_poll_us;
  return fabric_->nap_ms() < 0 ? -1 : fabric_->nap_ms() * 1000;
}

void Context::sleep(Lock& lock, const Operation& op, Deadline deadline) {
  if (sleepers_.taken()) return sleepers_.sleep_beside(lock);
  if (!begin_sleep(&op)) {
    if (!inbox_.keeps_many()) return;
    // Early messages that stay where they are would keep it awake for as long as it waits.
    lock.without([] { std::this_thread::sleep_for(kManyNap); });
    return;
  }
  const int nap_ms = watches_device() ? 1 : fabric_->nap_ms() < 0 ? kWatchMs : fabric_->nap_ms();
  lock.without([this, nap_ms, deadline] {
    epoll_event event;
    epoll_wait(epoll_fd(), &event, 1, deadline.remaining_ms(nap_ms));
  });
  end_sleep();
}

}  // namespace weft::engine
