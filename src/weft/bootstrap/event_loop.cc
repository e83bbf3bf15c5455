// EventLoop over epoll, with an eventfd to wake it.
#include "bootstrap/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "base/mutex.h"

namespace weft::bootstrap {
namespace {

constexpr EventLoop::Id kWakeId = 0;

}  // namespace

Result<std::shared_ptr<EventLoop>> EventLoop::create() {
  std::shared_ptr<EventLoop> loop(new EventLoop);
  loop->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  loop->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->epoll_.valid() || !loop->wake_.valid()) return fail_errno(errno, "epoll_create1 or eventfd");
  epoll_event event{};
  event.events = EPOLLIN, event.data.u64 = kWakeId;
  if (epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->wake_.get(), &event) != 0)
    return fail_errno(errno, "epoll_ctl");
  return loop;
}

void EventLoop::loop() {
  thread_ = std::this_thread::get_id();
  epoll_event events[64];
  while (!stopping_) {
    const int ready = epoll_wait(epoll_.get(), events, std::size(events), next_timer_ms());
    for (int i = 0; i < ready; ++i) {
      if (events[i].data.u64 == kWakeId) {
        uint64_t count;
        [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
      } else if (const auto found = watches_.find(events[i].data.u64); found != watches_.end()) {
        const std::shared_ptr<OnReady> callback = found->second.ready;
        (*callback)(events[i].events);
      }
    }
    run_posted();
    run_timers();
  }
  close();
}

void EventLoop::stop() {
  stopping_ = true;
  wake();
}

void EventLoop::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::post(Task task) {
  {
    const MutexLock lock(mutex_);
    if (!closed_) {
      posted_.push_back(std::move(task));
      if (posted_.size() == 1) wake();
      return;
    }
  }
  task();
}

void EventLoop::run(Task task) {
  if (on_this_thread()) return task();
  // Shared: the loop's thread still holds them for a moment after the waiting side has seen `done`.
  struct Rendezvous {
    Mutex mutex;
    std::condition_variable_any changed;
    bool done WEFT_GUARDED_BY(mutex) = false;
  };
  const auto meeting = std::make_shared<Rendezvous>();
  post([&task, meeting] {
    task();
    const MutexLock lock(meeting->mutex);
    meeting->done = true;
    meeting->changed.notify_one();
  });
  MutexLock lock(meeting->mutex);
  while (!meeting->done) meeting->changed.wait(lock);
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

EventLoop::Id EventLoop::watch(int fd, uint32_t events, OnReady ready) {
  const Id id = ++last_id_;
  epoll_event event{};
  event.events = events, event.data.u64 = id;
  // It fails only for a bad descriptor or without memory; the owner's deadlines then do their work.
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  watches_.emplace(id, Watch{fd, std::make_shared<OnReady>(std::move(ready))});
  return id;
}

void EventLoop::change(Id watch, uint32_t events) {
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  epoll_event event{};
  event.events = events, event.data.u64 = watch;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event);
}

void EventLoop::unwatch(Id watch) {
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  // Out of the map first: what the callback owns may end further watches when it goes.
  const Watch ended = std::move(found->second);
  watches_.erase(found);
}

EventLoop::Id EventLoop::at(Deadline when, Task task) {
  const Id id = ++last_id_;
  timers_.emplace(when.at_ns(), Timer{id, std::move(task)});
  return id;
}

void EventLoop::cancel(Id timer) {
  // Few timers are set at a time and most are cancelled: a search costs less than an index.
  for (auto each = timers_.begin(); each != timers_.end(); ++each) {
    if (each->second.id == timer) {
      const Task ended = std::move(each->second.task);
      timers_.erase(each);
      return;
    }
  }
}

void EventLoop::run_timers() {
  const int64_t now = now_ns();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const Task task = std::move(timers_.begin()->second.task);
    timers_.erase(timers_.begin());
    task();
  }
}

int EventLoop::next_timer_ms() const {
  if (timers_.empty() || timers_.begin()->first == INT64_MAX) return -1;
  const int64_t left_ms = (timers_.begin()->first - now_ns() + 999'999) / 1'000'000;
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000));
}

void EventLoop::close() {
  // What callbacks own may end watches or post while it goes: take everything out before anything is
  // destroyed.
  auto watches = std::move(watches_);
  auto timers = std::move(timers_);
  watches_.clear();
  timers_.clear();
  watches.clear();
  timers.clear();
  for (;;) {
    std::vector<Task> tasks;
    {
      const MutexLock lock(mutex_);
      tasks.swap(posted_);
      closed_ = tasks.empty();
      if (closed_) break;
    }
    for (Task& task : tasks) task();
  }
  thread_ = std::thread::id();
}

}  // namespace weft::bootstrap
