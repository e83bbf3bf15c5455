#include "engine/context/waiting.h"

#include <sched.h>
#include <sys/epoll.h>

#include <chrono>
#include <thread>

#include "base/settings.h"
#include "engine/context/context.h"
#include "engine/context/progress.h"
#include "engine/context/wait_policy.h"

namespace weft::engine {
namespace {

constexpr int kWatchMs = 100;  // the longest sleep
constexpr int kYieldsForOthers = 100;
constexpr std::chrono::microseconds kManyNap{50};
// An operation that moves no more than this is short. A wait for it polls for kLingerNs after each event.
constexpr uint64_t kShortBytes = 64 << 10;
constexpr int64_t kLingerNs = 500'000;

bool is_short(const Operation& op) {
  return op.memory.bytes[0] + op.memory.bytes[1] + op.memory.bytes[2] <= kShortBytes;
}

}  // namespace

void Waiting::wait(Lock& lock, Operation& op, Deadline deadline) {
  context_.sleepers().begin_wait();
  const bool crowded = context_.fabric().oversubscribed();
  const int64_t spin_ns = crowded ? 0 : int64_t{settings().spin_us} * 1000;
  WaitPolicy policy({.spin_ns = spin_ns,
                     .yield_ns = spin_ns + int64_t{settings().yield_us} * 1000,
                     .crowded = crowded,
                     .looks = crowded ? WaitPolicy::kCrowdedLooks : WaitPolicy::kLooks,
                     .linger_ns = is_short(op) ? kLingerNs : 0});
  const bool timed = deadline.at_ns() != INT64_MAX;
  while (!op.end.finished.load(std::memory_order_acquire)) {
    if (timed && deadline.passed()) break;
    if (context_.turn() > 0) {
      policy.found();
      if (context_.lock_is_wanted()) [[unlikely]]
        give_way(lock);
      continue;
    }
    if (policy.found_nothing()) {
      const int64_t now = now_ns();
      policy.tell(now, rings());
      context_.check_if_due(now);
      if (policy.over()) {
        sleep(lock, op, deadline);
        continue;
      }
    }
    if (policy.spins() && !context_.lock_is_wanted()) {
      if (policy.pauses()) cpu_relax();
    } else {
      give_way(lock);
    }
  }
  if (context_.sleepers().end_wait() && context_.busy()) wake_progress();
}

// A long operation has events in every turn. Without this its waiter would keep the lock to its end.
void Waiting::give_way(Lock& lock) {
  lock.without([this] {
    int yields = 0;  // a thread that wants the lock has to wake up first
    do sched_yield();
    while (context_.lock_is_wanted() && ++yields < kYieldsForOthers);
  });
}

// ---- Sleeping

bool Waiting::begin_sleep(const Operation* op) {
  Sleepers& sleepers = context_.sleepers();
  if (sleepers.taken() || !context_.fabric().prepare_sleep()) return false;
  sleepers.announce();
  if (context_.submissions().any(std::memory_order_seq_cst)) {
    sleepers.withdraw();
    context_.fabric().finish_sleep();
    return false;
  }
  sleepers.begin_sleep(op);
  return true;
}

void Waiting::end_sleep() {
  context_.sleepers().end_sleep();
  context_.fabric().finish_sleep();
}

bool Waiting::watches_device() const {
  return context_.operations().uses_device() || !context_.device_operations().empty();
}

const device::cuda::Device* Waiting::busy_device() const {
  return watches_device() ? context_.device_operations().only_device() : nullptr;
}

int Waiting::nap_us() const {
  if (watches_device()) return settings().cuda_poll_us;
  const int nap_ms = context_.fabric().nap_ms();
  return nap_ms < 0 ? -1 : nap_ms * 1000;
}

bool Waiting::rings() const { return context_.operations().uses_network() && nap_us() < 0; }

void Waiting::sleep(Lock& lock, const Operation& op, Deadline deadline) {
  if (context_.sleepers().taken()) return context_.sleepers().sleep_beside(lock);
  if (!begin_sleep(&op)) {
    if (!context_.inbox().keeps_many()) return;
    // Early messages that stay where they are would keep it awake for as long as it waits.
    lock.without([] { std::this_thread::sleep_for(kManyNap); });
    return;
  }
  const int of_network = context_.fabric().nap_ms();
  const int nap_ms = watches_device() ? 1 : of_network < 0 ? kWatchMs : of_network;
  lock.without([this, nap_ms, deadline] {
    epoll_event event;
    epoll_wait(context_.fabric().epoll_fd(), &event, 1, deadline.remaining_ms(nap_ms));
  });
  end_sleep();
}

// ---- The progress thread

void Waiting::wake_progress() {
  due_timer_.disarm();
  ProgressEngine::wake(home_);
}

bool Waiting::timer_is_due(int64_t now_ns) {
  return due_timer_.is_due(now_ns, [this] { return context_.fabric().due_ns(); });
}

void Waiting::leave() {
  if (context_.unsent() && !context_.sleepers().any_waiting()) hand_on();
}

// Back-to-back calls would wake the progress thread at each of them. The timer wakes it for the first.
void Waiting::hand_on() {
  const bool only_due = context_.fabric().due_ns() != 0 && context_.operations().empty() &&
                        context_.device_operations().empty() && !context_.failures().any_death() &&
                        !context_.submissions().any(std::memory_order_seq_cst);
  if (!only_due) return wake_progress();
  if (!due_timer_.arm()) return;
  ProgressEngine::wake(home_);
  if (context_.submissions().any(std::memory_order_seq_cst)) due_timer_.disarm();  // since we looked
}

}  // namespace weft::engine
