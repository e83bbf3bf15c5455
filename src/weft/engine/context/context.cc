#include "engine/context/context.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

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
#include "device/window.h"
#include "engine/gpu/captured_calls.h"
#include "engine/run/communicator.h"
#include "engine/gpu/device_run.h"
#include "engine/record/dump.h"
#include "engine/run/interpreter.h"
#include "engine/context/patience.h"
#include "engine/context/progress.h"
#include "engine/run/stream.h"
#include "job/tuning.h"

namespace weft::engine {
namespace {

constexpr size_t kReasonBytes = 512;  // of why a rank cannot go on, as others read it

// How often a driver that finds nothing to do looks at deadlines, and its longest sleep.
constexpr int64_t kCheckNs = 100'000'000;
constexpr int kWatchMs = 100;
constexpr int kYieldsForOthers = 100;
constexpr std::chrono::microseconds kManyNap{50};
// What moves no more than this is short: how long a wait for it goes on looking behind the first news.
constexpr uint64_t kShortBytes = 64 << 10;
constexpr int64_t kLingerNs = 500'000;
// What waits to share a write for longer than this has been left behind. How long nothing may wait before it
// is no row any more; and how often a turn is taken while there is one, as a socket may have room again.
constexpr int64_t kLeftBehindNs = 40'000, kQuietNs = 400'000, kRowTurnNs = 1'000'000;

bool is_short(const Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  return plan::input_bytes(plan.request, plan.ranks, plan.rank) +
             plan::output_bytes(plan.request, plan.ranks, plan.rank) + plan.scratch_bytes <=
         kShortBytes;
}

/// Why an operation's communicator fails, with the operation's name.
Status reason(const Operation& op, const Status& failure) {
  return (op.device ? op.device->explain(failure) : failure).in(op.comm->describe(op));
}

}  // namespace

Context::Context() : stash_(settings().early_bytes) {}

Result<std::shared_ptr<Context>> Context::join(const bootstrap::UniqueId& id, int rank, int ranks,
                                               const std::string& host_id, int cuda_device,
                                               bool yields_device, Deadline deadline) {
  std::shared_ptr<Context> context(new Context);
  // Of the secret alone: the address beside it is what each rank's resolver has made of the root's name.
  const auto job = bootstrap::read_unique_id(id);
  if (!job) return job.status();
  context->job_ = hash_64({reinterpret_cast<const char*>(job->secret.data()), job->secret.size()});
  auto joined = bootstrap::Bootstrap::join(id, rank, ranks, deadline);
  if (!joined) return joined.status();
  context->bootstrap_ = joined.take();
  log::add_rank(rank);

  context->doorbell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!context->doorbell_.valid()) return fail_errno(errno, "eventfd");
  auto fabric = Fabric::open(*context->bootstrap_, host_id, cuda_device, deadline);
  if (!fabric) return fabric.status();
  context->fabric_ = fabric.take();
  MemoryWatch::install();
  WEFT_TRY(context->meet(yields_device      ? Seat::yields_device
                         : cuda_device >= 0 ? Seat::on_device
                                            : Seat::on_host,
                         deadline));
  WEFT_TRY(context->open_trace(deadline));
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(context->epoll_fd(), EPOLL_CTL_ADD, context->doorbell_.get(), &event) != 0)
    return fail_errno(errno, "epoll_ctl");

  Context* raw = context.get();  // the bootstrap is stopped before the context goes
  WEFT_TRY(context->bootstrap_->start({
      .on_dead = [raw](int dead, const Status& why) { raw->on_dead(dead, why); },
      .on_failed = [raw](int from, uint32_t comm,
                         const std::string& why) { raw->on_failed(from, comm, why); },
      .on_data_connection =
          [raw](int from, uint32_t purpose, UniqueFd connection) {
            raw->fabric_->accept(from, purpose, std::move(connection));
          },
      .on_question = [raw](int from, uint32_t comm,
                           uint32_t number) { return raw->on_question(from, comm, number); },
  }));
  context->home_ = ProgressEngine::instance().attach(*context);
  return context;
}

// Nobody goes on before everybody is reachable; this also tells those who wait that somebody failed in
// opening its fabric. On this occasion rank 0 says which machine all are to reckon with, and each whether it
// has a device.
Status Context::meet(Seat seat, Deadline deadline) {
  std::vector<std::byte> mine = (rank() == 0 ? decide_machine(*fabric_) : MachineDecision()).packed();
  mine.push_back(static_cast<std::byte>(seat));
  auto all = bootstrap_->all_gather(mine, deadline);
  if (!all) return all.status();
  all_on_devices_ = true;
  for (size_t end = mine.size(); end <= all->size(); end += mine.size()) {
    const auto of_rank = static_cast<Seat>((*all)[end - 1]);
    all_on_devices_ &= of_rank == Seat::on_device;
    any_yields_device_ |= of_rank == Seat::yields_device;
  }
  const MachineDecision decision = MachineDecision::unpack({all->data(), mine.size() - 1});
  if (decision.tunes && !decision.measure) set_machine(decision.machine);
  else machine_ = decision.machine;
  wants_measuring_ = decision.measure;
  tunes_ = decision.tunes;
  return {};
}

void Context::set_machine(model::Machine machine) {
  machine_ = std::move(machine);
  const Lock lock = this->lock();
  if (transport::Transport* const network = fabric_->between_nodes(); network != nullptr)
    network->bound_flight(model::flight_bytes(machine_, fabric_->layout()));
}

// A collective where any rank writes a trace: of those on a node the first one starts the file before
// anybody appends to it.
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
  // All learn why one could not: that its connection ends says nothing.
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
  if (fabric_) {
    const MemoryWatch watch(owns, this);
    if (Status flushed = fabric_->flush(Deadline::in_seconds(5)); !flushed)
      log::warn("leaving with data unsent: {}", flushed.message());
  }
  if (bootstrap_) bootstrap_->stop();
  {
    const Lock lock = this->lock();
    inquiries_in_turn_.clear();  // there is no communicator left to fail
  }
  if (inquiry_.joinable()) inquiry_.join();
  fabric_.reset();
  bootstrap_.reset();
  pool_.clear();  // before what its operations have used
  for (auto& [ordinal, executor] : device_executors_)
    if (executor) DeviceExecutor::close(std::move(executor));
}

Lock Context::lock_slowly() {
  wanting_.fetch_add(1, std::memory_order_relaxed);
  Lock lock(mutex_);
  wanting_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

void Context::attach(Communicator& comm) { communicators_[comm.id()] = &comm; }

void Context::detach(Communicator& comm) {
  communicators_.erase(comm.id());
  retired_.insert(comm.id());
  stash_.drop(comm.id());
  const std::lock_guard guard(news_mutex_);
  news_.erase(comm.id());
}

Operation* Context::acquire() {
  if (free_.empty()) {
    pool_.push_back(std::make_unique<Operation>());
    free_.push_back(pool_.back().get());
  }
  Operation* op = free_.back();
  free_.pop_back();
  op->context = this;
  op->renew();
  return op;
}

void Context::release(Operation* op) {
  if (!op->drop()) return;
  op->buffers.reset();
  free_.push_back(op);
}

// ---- starting and ending
// -------------------------------------------------------------------------------------------

void Context::start(Operation& op) {
  const MemoryWatch watch(owns, this);
  if (op.finished.load(std::memory_order_relaxed)) return;  // cancelled while it was queued
  if (Record* record = op.own_record())
    record->started = op.call.stream || op.device ? ticks() : record->queued;
  enter(op);
  if (!op.comm->failure().ok()) return finish(op, op.comm->failure());
  if (Status prepared = op.device ? op.device->prepare() : prepare_buffers(op); !prepared)
    return op.comm->fail(reason(op, prepared), true);
  if (MemoryWatch::lost()) [[unlikely]]
    return settle_lost_memory();
  reset_progress(op);
  if (!stash_.empty()) deliver_stashed(op);
  advance_one(op);
}

// From here on messages find it, turns advance it, and finish() takes it out again.
void Context::enter(Operation& op) {
  op.retain();
  op.started = true;
  op.active_index = static_cast<uint32_t>(active_.size());
  active_.push_back(&op);
  Operation*& head = bucket(op.comm->id(), op.number);
  op.next_in_bucket = head;
  head = &op;
  hot_ = &op;
  network_operations_ += op.prepared->between_nodes;
  device_operations_ += op.device != nullptr;
}

Status Context::prepare_buffers(Operation& op) {
  const plan::Plan& plan = op.prepared->plan;
  const int ranks = op.comm->size();
  op.base[0] = static_cast<std::byte*>(const_cast<void*>(op.call.send));
  op.base[1] = static_cast<std::byte*>(op.call.recv);
  op.base_bytes[0] = plan::input_bytes(plan.request, ranks, plan.rank);
  op.base_bytes[1] = plan::output_bytes(plan.request, ranks, plan.rank);
  op.base_bytes[2] = plan.scratch_bytes;
  if (plan.scratch_bytes <= kInlineScratch && !op.prepared->exposes[2]) {
    op.base[2] = op.inline_scratch;
  } else {
    auto block = scratch_.take(plan.scratch_bytes);
    if (!block) return block.status();
    op.scratch = *block;
    op.base[2] = block->data;
  }
  if (op.call.premultiply && op.base_bytes[0] > 0) {
    WEFT_TRY(stage(op, plan::Space::input, op.staged_input));
    device::scale(op.call.type, op.base[0], op.call.send, op.base_bytes[0] / device::size_of(op.call.type),
                  op.call.scalar);
  }
  // Where the kernel forbids single-copy reads, what peers of the node must read goes through a window.
  const transport::Transport* local = fabric_->local();
  if (!local || local->reads_peers()) return {};
  if (op.prepared->exposes[0] && !op.staged_input.data &&
      !device::find_window(op.base[0], op.base_bytes[0])) {
    WEFT_TRY(stage(op, plan::Space::input, op.staged_input));
    if (op.base_bytes[0]) device::copy(op.base[0], op.call.send, op.base_bytes[0]);
  }
  if (op.prepared->exposes[1] && !device::find_window(op.base[1], op.base_bytes[1]))
    WEFT_TRY(stage(op, plan::Space::output, op.staged_output));
  return {};
}

Status Context::stage(Operation& op, plan::Space space, ScratchPool::Block& block) {
  const int index = static_cast<int>(space);
  auto taken = scratch_.take(op.base_bytes[index]);
  if (!taken) return taken.status();
  block = *taken;
  op.base[index] = block.data;
  return {};
}

// Peers of an operation that succeeded are done with what it has exposed; those of one that failed may stand
// in the middle of a write.
void Context::give_back(const Operation& op, plan::Space space, ScratchPool::Block& block, bool succeeded) {
  if (!block.data) return;
  if (succeeded || !op.prepared->exposes[static_cast<int>(space)]) scratch_.give(block);
  else scratch_.retire(block, now_ns());
  block = {};
}

int Context::advance_one(Operation& op) {
  const Result<bool> moved = advance(op);
  if (MemoryWatch::lost()) [[unlikely]] {
    settle_lost_memory();
    if (op.finished.load(std::memory_order_relaxed)) return 1;
  }
  if (!moved) {
    op.comm->fail(reason(op, moved.status()), true);
  } else if (complete(op)) {
    finish(op, Status());
  } else {
    return *moved ? 1 : 0;
  }
  return 1;
}

void Context::finish(Operation& op, Status status) {
  if (op.finished.load(std::memory_order_relaxed)) return;
  if (op.started) {
    if (!status.ok() && op.puts_open > 0)
      for (transport::Transport* t : {fabric_->local(), fabric_->between_nodes()})
        if (t) t->forget(op.completions.data(), op.completions.data() + op.completions.size());
    op.readings.clear();
    for (const auto& exposure : op.exposures) exposure.transport->unexpose(exposure.buffer);
    op.exposures.clear();
    if (op.device) {
      op.device->end(status.ok());
      if (!status.ok()) (void)settle_leftovers();
    }
    op.mappings.clear();
    if (op.staged_output.data && status.ok()) {
      device::copy(op.call.recv, op.staged_output.data, op.base_bytes[1]);
      if (Status gone = lost_memory(op); !gone.ok()) fail_later(*op.comm, status = reason(op, gone));
    }
    give_back(op, plan::Space::scratch, op.scratch, status.ok());
    give_back(op, plan::Space::input, op.staged_input, status.ok());
    give_back(op, plan::Space::output, op.staged_output, status.ok());
    network_operations_ -= op.prepared->between_nodes;
    left_with_network_ |= op.prepared->between_nodes;
    device_operations_ -= op.device != nullptr;
    active_.erase(active_.begin() + op.active_index);
    for (uint32_t i = op.active_index; i < active_.size(); ++i) active_[i]->active_index = i;
    Operation** link = &bucket(op.comm->id(), op.number);
    while (*link != &op) link = &(*link)->next_in_bucket;
    *link = op.next_in_bucket;
    if (hot_ == &op) hot_ = active_.empty() ? nullptr : active_.back();
  }
  if (Record* record = op.own_record()) {
    record->outcome = status.code();
    record->done = ticks();
    if (trace_ && op.started) trace_->operation(op);
  }
  if (op.device) op.device->release_stream();
  op.comm->operation_ended(op);
  op.status = std::move(status);
  // The stream lets go before a waiter can see the end and destroy it.
  const bool leaves_stream = op.call.stream != nullptr;
  if (leaves_stream) op.call.stream->on_finished(op);
  op.finished.store(true, std::memory_order_release);
  if (cv_waiters_ > 0) finished_cv_.notify_all();
  if (slept_for_ == &op) ring_sleeper();  // not all ends come from what it watches
  if (leaves_stream) release(&op);
  if (op.started) release(&op);
}

void Context::dump_all() {
  Lock lock = this->lock();
  for (auto& [id, comm] : communicators_) {
    if (comm->is_lane()) continue;
    if (std::string path = dump_to_directory(*comm); !path.empty()) log::warn("flight recorder: {}", path);
  }
}

void Context::wake_progress() {
  in_row_.store(false);
  ProgressEngine::wake(home_);
}

// A row would ring at each of its calls.
void Context::hand_on() {
  const bool row = fabric_->waits_since() != 0 && active_.empty() && awaiting_.empty() && deaths_.empty() &&
                   !has_leftovers_ && !has_submissions_.load();
  if (!row) return wake_progress();
  if (in_row_.exchange(true)) return;
  ProgressEngine::wake(home_);
  if (has_submissions_.load()) in_row_.store(false);  // since we looked
}

bool Context::look_after_row(int64_t now) {
  const int64_t since = fabric_->waits_since();
  const bool left_behind = since != 0 && now - since > kLeftBehindNs;
  if (since != 0) quiet_since_ns_ = 0;
  else if (quiet_since_ns_ == 0) quiet_since_ns_ = now;
  if (left_behind || now - turn_ns_ > kRowTurnNs) {
    turn_ns_ = now;
    return true;
  }
  if (quiet_since_ns_ == 0 || now - quiet_since_ns_ < kQuietNs) return false;
  quiet_since_ns_ = 0;
  // Whoever has found a row before this sees to it that what waits by then is seen here: that is what the
  // exchange is for.
  in_row_.exchange(false);
  return fabric_->waits_since() != 0;
}

// ---- driving
// -------------------------------------------------------------------------------------------------------

int Context::turn() {
  const MemoryWatch watch(owns, this);
  int events = 0;
  if (has_submissions_.load(std::memory_order_relaxed)) events += take_submissions();
  if (!awaiting_.empty()) events += start_awaiting();
  if (has_leftovers_) events += settle_leftovers();
  const bool network = network_operations_ > 0 || unsent() || ++turns_ % kQuietNetworkTurns == 0;
  Result<int> polled = fabric_->poll(*this, network);
  if (MemoryWatch::lost()) [[unlikely]]
    settle_lost_memory();
  if (!polled) {
    for (auto& [id, comm] : std::unordered_map(communicators_)) comm->fail(polled.status(), true);
    return 1;
  }
  events += *polled;
  if (!pending_failures_.empty())
    for (auto& [id, why] : std::exchange(pending_failures_, {}))
      if (Communicator* comm = find_communicator(id)) comm->fail(why, true);
  // The oldest first: what it puts travels before what younger ones put.
  for (size_t i = 0; i < active_.size();) {
    Operation& op = *active_[i];
    if (op.may_move) events += advance_one(op);
    if (i < active_.size() && active_[i] == &op) ++i;  // else it has ended, and what is behind it moved up
  }
  events_ += static_cast<uint64_t>(events);
  return events;
}

void Context::wait(Lock& lock, Operation& op) {
  waiters_.store(waiters_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // A progress thread that sleeps in here will not drive now that somebody waits.
  if (sleeper_) ring_sleeper();
  const bool crowded = fabric_->oversubscribed();
  const int64_t spin_ns = crowded ? 0 : int64_t{settings().spin_us} * 1000;
  Patience patience({.spin_ns = spin_ns,
                     .yield_ns = spin_ns + int64_t{settings().yield_us} * 1000,
                     .crowded = crowded,
                     .looks = crowded ? Patience::kCrowdedLooks : Patience::kLooks,
                     .linger_ns = is_short(op) ? kLingerNs : 0});
  while (!op.finished.load(std::memory_order_acquire)) {
    if (turn() > 0) {
      patience.found();
      continue;
    }
    if (patience.found_nothing()) {
      const int64_t now = now_ns();
      patience.tell(now, rings());
      if (now - last_check_ns_ > kCheckNs) check_deadlines(now);
      if (patience.over()) {
        sleep(lock, op);
        continue;
      }
    }
    if (patience.spins() && wanting_.load(std::memory_order_relaxed) == 0) {
      if (patience.pauses()) cpu_relax();
    } else {
      lock.unlock();
      int yields = 0;  // whoever wants the lock has to wake up first
      do sched_yield();
      while (wanting_.load(std::memory_order_relaxed) > 0 && ++yields < kYieldsForOthers);
      lock = this->lock();
    }
  }
  if (waiters_.fetch_sub(1) == 1 && busy()) wake_progress();
}

bool Context::begin_sleep() {
  if (sleeper_ || !fabric_->prepare_sleep()) return false;
  asleep_.store(true);
  if (has_submissions_.load()) {
    asleep_.store(false);
    fabric_->finish_sleep();
    return false;
  }
  sleeper_ = true;
  return true;
}

void Context::end_sleep() {
  sleeper_ = false;
  asleep_.store(false);
  uint64_t rings;
  while (read(doorbell_.get(), &rings, sizeof rings) > 0) {
  }
  fabric_->finish_sleep();
  if (cv_waiters_ > 0) finished_cv_.notify_all();
}

void Context::sleep(Lock& lock, const Operation& op) {
  if (sleeper_) {
    ++cv_waiters_;
    finished_cv_.wait_for(lock, std::chrono::milliseconds(1));
    --cv_waiters_;
    return;
  }
  if (!begin_sleep()) {
    if (!keeps_many()) return;
    // Early messages that stay where they are would keep it awake for as long as it waits.
    lock.unlock();
    std::this_thread::sleep_for(kManyNap);
    lock = this->lock();
    return;
  }
  slept_for_ = &op;
  epoll_event event;
  const int nap = nap_ms() < 0 ? kWatchMs : nap_ms();
  lock.unlock();
  epoll_wait(epoll_fd(), &event, 1, nap);
  lock = this->lock();
  slept_for_ = nullptr;
  end_sleep();
}

Communicator* Context::find_communicator(uint32_t id) {
  auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : found->second;
}

std::byte* Context::bounce(size_t bytes) {
  if (bounce_.size() < bytes) bounce_.resize(bytes);
  return bounce_.data();
}

}  // namespace weft::engine
