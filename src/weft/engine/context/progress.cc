#include "engine/context/progress.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/memory_watch.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/thread.h"
#include "device/cuda/device.h"
#include "engine/context/context.h"
#include "engine/context/wait_policy.h"
#include "engine/record/dump.h"
#include "topology/host.h"

namespace weft::engine {
namespace {

// A thread looks again for about as long as a sleep and a wake-up cost.
constexpr WaitPolicy::Limits kWaiting{.yield_ns = 20'000, .looks = 1};
// The same while a device works for an operation, which rings no bell: such work is short. Where ranks share
// CPUs it sleeps between looks instead, since whoever yields there waits for everybody else.
constexpr int64_t kDeviceLingerNs = 2'000'000;
// The longest sleep while operations are in flight, so that deadlines are looked at.
constexpr int kWatchUs = 100'000;
// The same while a context leaves early messages where they are (Inbox::takes_early()).
constexpr int kManyUs = 1000;
// The slack of a sleep's end.
constexpr unsigned long kSlackNs = 1000;

std::atomic<uint64_t> g_dumps_requested{0}, g_dumps_written{0};  // requests so far, and of these, served
std::atomic<int> g_signal_doorbell{-1};                          // of the thread that serves such requests

/// A forked child has the descriptor, but not the thread: a signal to the child is not one to its parent.
const bool leaves_doorbell = (on_fork_in_child([] { g_signal_doorbell.store(-1); }), true);

}  // namespace

class ProgressThread {
 public:
  /// `cpu` is where it is pinned; -1 = anywhere. Errors: system_error.
  static Result<std::unique_ptr<ProgressThread>> start(int index, int cpu) {
    std::unique_ptr<ProgressThread> made(new ProgressThread(index, cpu));
    Result<std::thread> thread = start_thread("weft-progress", [self = made.get()] { self->run(); });
    if (!thread.ok()) return thread.status();
    made->thread_ = thread.take();
    return made;
  }
  ~ProgressThread() {
    stop_.store(true);
    ring();
    if (thread_.joinable()) thread_.join();
    int own = doorbell_.get();  // a successor may have put its own there
    if (index_ == 0) g_signal_doorbell.compare_exchange_strong(own, -1);
  }

  void ring() {
    const uint64_t one = 1;
    if (write(doorbell_.get(), &one, sizeof one) < 0) return;  // the counter is full: it rings already
  }

  void add(Context& context) {
    const MutexLock guard(mutex_);
    contexts_.push_back(&context);
  }

  void remove(Context& context) {
    MutexLock guard(mutex_);
    std::erase(contexts_, &context);
    const uint64_t round = round_;
    if (!in_round_) return;
    ring();
    while (round_ == round) round_over_.wait(guard);
  }

  size_t load() {
    const MutexLock guard(mutex_);
    return contexts_.size();
  }

 private:
  ProgressThread(int index, int cpu)
      : index_(index), cpu_(cpu), doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (index == 0) g_signal_doorbell.store(doorbell_.get());
  }

  void run() {
    device::cuda::keep_context_on_this_thread();
    MemoryWatch::unblock();
    if (cpu_ >= 0) pin_thread(cpu_);
    ::prctl(PR_SET_TIMERSLACK, kSlackNs);
    WaitPolicy policy(kWaiting);
    std::vector<Context*> mine;
    while (!stop_.load()) {
      if (index_ == 0 && g_dumps_written != g_dumps_requested) ProgressEngine::instance().serve_dumps();
      {
        const MutexLock guard(mutex_);
        in_round_ = true;
        mine = contexts_;
      }
      std::erase_if(
          mine, [](Context* c) { return c->sleepers().any_waiting() && !c->waiting().due_timer().armed(); });
      bool worked = false, in_flight = false, on_device = false, rings = true;
      const device::cuda::Device* entered = nullptr;  // once for all contexts of a device
      std::optional<device::cuda::Scope> scope;
      for (Context* context : mine) {
        if (context->waiting().due_timer().armed() &&
            (!context->waiting().timer_is_due(now_ns()) || context->sleepers().any_waiting()))
          continue;
        Lock lock = context->lock();
        if (!context->busy()) {
          context->waiting().due_timer().disarm();
          continue;
        }
        if (const device::cuda::Device* device = context->waiting().busy_device();
            device && device != entered) {
          scope.reset();
          scope.emplace(*device);
          entered = device;
        }
        worked |= context->turn() > 0;
        in_flight |= context->busy();
        rings &= context->waiting().rings();
        on_device |= context->operations().uses_device() && !context->fabric().oversubscribed();
      }
      scope.reset();
      if (worked) policy.found();
      else if (policy.found_nothing()) policy.tell(now_ns(), rings);
      const bool over = on_device ? policy.idle_ns() > kDeviceLingerNs : policy.over();
      if (!worked && (!in_flight || over)) {
        sleep(mine);
        if (in_flight) policy.slept();
        else policy = WaitPolicy(kWaiting);
      } else if (!worked && on_device) {
        sched_yield();
      }
      const MutexLock guard(mutex_);
      in_round_ = false;
      ++round_;
      round_over_.notify_all();
    }
  }

  // Sleeps on the doorbell and on every context that this thread is responsible for now.
  void sleep(const std::vector<Context*>& mine) {
    fds_.assign(1, {doorbell_.get(), POLLIN, 0});
    entered_.clear();
    int timeout_us = -1;  // any
    const auto no_longer_than = [&timeout_us](int us) {
      if (us >= 0) timeout_us = timeout_us < 0 ? us : std::min(timeout_us, us);
    };
    bool something = false;
    for (Context* context : mine) {
      if (context->waiting().due_timer().armed()) {
        no_longer_than(DueTimer::kSleepUs);
        continue;
      }
      Lock lock = context->lock();
      if (!context->busy() || context->sleepers().any_waiting()) continue;
      context->check_deadlines(now_ns());
      if (!context->waiting().begin_sleep()) {
        if (context->inbox().keeps_many()) {
          no_longer_than(kManyUs);
          no_longer_than(context->waiting().nap_us());
          continue;
        }
        something = true;
        break;
      }
      entered_.push_back(context);
      fds_.push_back({context->fabric().epoll_fd(), POLLIN, 0});
      no_longer_than(context->waiting().nap_us() < 0 ? kWatchUs : context->waiting().nap_us());
    }
    const timespec timeout{timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000L};
    if (!something) ::ppoll(fds_.data(), fds_.size(), timeout_us < 0 ? nullptr : &timeout, nullptr);
    for (Context* context : entered_) {
      Lock lock = context->lock();
      context->waiting().end_sleep();
    }
    if (fds_.front().revents == 0) return;  // nobody has rung
    uint64_t rings;
    while (read(doorbell_.get(), &rings, sizeof rings) > 0) {
    }
  }

  const int index_;
  const int cpu_;
  UniqueFd doorbell_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::condition_variable_any round_over_;
  bool in_round_ = false;
  uint64_t round_ = 0;
  std::vector<Context*> contexts_;
  std::vector<pollfd> fds_;  // of sleep(), kept for their memory
  std::vector<Context*> entered_;
  std::thread thread_;  // joinable from start() on
};

ProgressEngine::ProgressEngine(const ProgressEngine* before) : process_(getpid()), before_(before) {}

// Outlives every static that may still hold a communicator. A forked child has a copy of it, but not its
// threads, and the mutex may have been taken: the child begins anew and leaves the copy as it is.
ProgressEngine& ProgressEngine::instance() {
  static std::atomic<ProgressEngine*> engine{new ProgressEngine(nullptr)};
  ProgressEngine* current = engine.load();
  while (current->process_ != getpid()) {
    auto* const fresh = new ProgressEngine(current);
    if (engine.compare_exchange_strong(current, fresh)) return *fresh;
    delete fresh;
  }
  return *current;
}

Result<ProgressThread*> ProgressEngine::attach(Context& context) {
  const MutexLock guard(mutex_);
  if (threads_.empty()) {
    const std::vector<int> cpus = topology::progress_cpus();
    std::vector<std::unique_ptr<ProgressThread>> threads;
    for (int i = 0; i < settings().progress_threads; ++i) {
      auto thread = ProgressThread::start(i, i < static_cast<int>(cpus.size()) ? cpus[i] : -1);
      if (!thread) return thread.status();
      threads.push_back(thread.take());
    }
    threads_ = std::move(threads);
  }
  ProgressThread* least = threads_.front().get();
  for (auto& thread : threads_)
    if (thread->load() < least->load()) least = thread.get();
  least->add(context);
  attached_.push_back(&context);
  return least;
}

void ProgressEngine::detach(Context& context, ProgressThread* home) {
  std::vector<std::unique_ptr<ProgressThread>> last;  // joined after the mutex is free
  {
    const MutexLock guard(mutex_);
    if (std::find(attached_.begin(), attached_.end(), &context) == attached_.end()) return;
  }
  home->remove(context);
  const MutexLock guard(mutex_);
  std::erase(attached_, &context);
  if (attached_.empty()) last.swap(threads_);
}

void ProgressEngine::wake(ProgressThread* home) {
  if (home) home->ring();
}

void ProgressEngine::request_dumps() {
  g_dumps_requested.fetch_add(1);
  const uint64_t one = 1;
  const int doorbell = g_signal_doorbell.load();
  if (doorbell >= 0 && write(doorbell, &one, sizeof one) < 0) return;
}

void ProgressEngine::serve_dumps() {
  if (g_dumps_written == g_dumps_requested) return;
  const MutexLock guard(mutex_);
  const uint64_t requested = g_dumps_requested;
  if (g_dumps_written == requested) return;  // this thread has waited for the one that wrote
  for (Context* context : attached_) dump_all(*context);
  g_dumps_written = requested;
}

}  // namespace weft::engine
