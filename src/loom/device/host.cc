// Queues that work at once, and queues that are threads.
#include "device/host.h"

#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <thread>

#include "base/check.h"
#include "base/thread.h"

namespace loom::device {
namespace {

/// Moments are counted; the event is reached when the last one that was recorded is.
class HostEvent final : public Event {
 public:
  Status wait() override {
    wait_for(last());
    return failure();
  }
  uint64_t last() const {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  uint64_t record() {
    const std::lock_guard lock(mutex_);
    return ++recorded_;
  }
  void reach(uint64_t moment, const Status& status) {
    const std::lock_guard lock(mutex_);
    if (moment < reached_) return;  // another queue recorded later, and was done before
    reached_ = moment;
    failure_ = status;
    changed_.notify_all();
  }
  void wait_for(uint64_t moment) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= moment; });
  }

 private:
  Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  uint64_t recorded_ = 0, reached_ = 0;
  Status failure_;  // of the queue, at the last moment that was reached
};

class QueueAtOnce final : public HostQueue {
 public:
  void run(Work work) override {
    if (status().ok()) (void)keep(work());
  }
  void record(Event& event) override {
    auto& own = static_cast<HostEvent&>(event);
    own.reach(own.record(), status());
  }
  void wait(const Event& event) override {
    const auto& own = static_cast<const HostEvent&>(event);
    own.wait_for(own.last());
  }
  Status drain() override { return status(); }
};

class ThreadQueue final : public HostQueue {
 public:
  static Result<std::unique_ptr<Queue>> create() {
    std::unique_ptr<ThreadQueue> queue(new ThreadQueue);
    Result<std::thread> thread = start_thread([own = queue.get()] { own->serve(); });
    LOOM_TRY(thread.status());
    queue->thread_ = thread.take();
    return std::unique_ptr<Queue>(std::move(queue));
  }
  ~ThreadQueue() override {
    if (!thread_.joinable()) return;
    push({});
    thread_.join();
  }
  void run(Work work) override {
    push([this, work = std::move(work)] {
      if (status().ok()) (void)keep(work());
    });
  }
  void record(Event& event) override {
    auto& own = static_cast<HostEvent&>(event);
    push([this, &own, moment = own.record()] { own.reach(moment, status()); });
  }
  void wait(const Event& event) override {
    const auto& own = static_cast<const HostEvent&>(event);
    push([&own, moment = own.last()] { own.wait_for(moment); });
  }
  Status drain() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ == queued_; });
    return status();
  }

 private:
  ThreadQueue() = default;
  /// Work without a function ends the thread.
  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++queued_;
    changed_.notify_all();
  }
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      if (!next) return;
      lock.unlock();
      next();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t queued_ = 0, done_ = 0;
  std::thread thread_;  // joinable once create() is through
};

}  // namespace

void HostQueue::copy(void* to, const void* from, int64_t bytes) {
  run([=] {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return Status();
  });
}

void HostQueue::fill(void* to, std::byte value, int64_t bytes) {
  run([=] {
    std::memset(to, static_cast<int>(value), static_cast<size_t>(bytes));
    return Status();
  });
}

const std::string& Host::describe() const {
  static const std::string name = "the CPU";
  return name;
}

Result<MemoryState> Host::memory() const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  return MemoryState{sysconf(_SC_AVPHYS_PAGES) * page, sysconf(_SC_PHYS_PAGES) * page};
}

Result<Memory> Host::allocate(int64_t bytes) {
  LOOM_TRY(at_least_one("the number of bytes", bytes));
  constexpr auto kAligned = static_cast<std::align_val_t>(kMemoryAlignment);
  void* const memory = ::operator new(static_cast<size_t>(bytes), kAligned, std::nothrow);
  if (memory == nullptr) return fail(Code::out_of_memory, "the host has no {} bytes of memory", bytes);
  return Memory(static_cast<std::byte*>(memory), bytes,
                [](std::byte* data) { ::operator delete(data, kAligned); });
}

Result<std::unique_ptr<Queue>> Host::make_queue() {
  if (queues_ == Queues::at_once) return std::unique_ptr<Queue>(new QueueAtOnce);
  return ThreadQueue::create();
}

Result<std::unique_ptr<Event>> Host::make_event() { return std::unique_ptr<Event>(new HostEvent); }

}  // namespace loom::device
