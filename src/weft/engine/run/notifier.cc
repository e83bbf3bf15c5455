#include "engine/run/notifier.h"

#include <chrono>
#include <utility>

#include "base/fork.h"
#include "base/memory_watch.h"
#include "base/thread.h"

namespace weft::engine {
namespace {

// How long a call may hold up those behind it.
constexpr std::chrono::milliseconds kPatience{1};
// More calls than so many that block are not expected: further ones wait for their end.
constexpr size_t kMostThreads = 64;

thread_local bool t_calling = false;

struct Home {
  ForkSafeMutex mutex;
  std::weak_ptr<Notifier> notifier;
};

// A child leaves its parent's as it is: the threads of that are not there.
Home* g_home = new Home;
const bool leaves_home = (on_fork_in_child([] { g_home = new Home; }), true);

}  // namespace

Result<std::shared_ptr<Notifier>> Notifier::of_process() {
  const MutexLock guard(g_home->mutex);
  std::shared_ptr<Notifier> known = g_home->notifier.lock();
  if (known) return known;
  known = std::make_shared<Notifier>();
  WEFT_TRY(known->begin());
  g_home->notifier = known;
  return known;
}

bool Notifier::is_calling_here() { return t_calling; }

Notifier::~Notifier() {
  {
    const MutexLock guard(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status Notifier::begin() {
  const MutexLock guard(mutex_);
  return start_another();
}

void Notifier::post(Call call) {
  const MutexLock guard(mutex_);
  calls_.push_back(std::move(call));
  // A thread that is inside of a call comes back for this one, unless the call blocks.
  if (running_ > blocked_ && watching_) return;
  call_for_another();
}

void Notifier::call_for_another() {
  if (idle_ > 0 || watching_) changed_.notify_one();
  else if (threads_.size() < kMostThreads) (void)start_another();  // or those behind wait for an end
}

Status Notifier::start_another() {
  Result<std::thread> thread = start_thread("weft-notify", [this] { run(); });
  if (!thread.ok()) return thread.status();
  threads_.push_back(thread.take());
  return {};
}

void Notifier::run() {
  MemoryWatch::unblock();
  MutexLock lock(mutex_);
  while (true) {
    if (calls_.empty() && stopping_) return;
    if (!calls_.empty() && running_ == blocked_) {
      carry_out_first();
    } else if (!calls_.empty() && !watching_) {
      watch(lock);
    } else {
      ++idle_;
      changed_.wait(lock);
      --idle_;
    }
  }
}

// Gives the lock up meanwhile.
void Notifier::carry_out_first() {
  Call call = std::move(calls_.front());
  calls_.pop_front();
  const uint64_t number = ++begun_;
  ++running_;
  if (!calls_.empty() && !watching_) call_for_another();
  mutex_.unlock();
  t_calling = true;
  call();
  call = nullptr;  // what it holds may call as well
  t_calling = false;
  mutex_.lock();
  --running_;
  if (number <= blocked_up_to_) --blocked_;
}

void Notifier::watch(MutexLock<Mutex>& lock) {
  const uint64_t begun = begun_;
  watching_ = true;
  const bool over = changed_.wait_for(lock, kPatience) == std::cv_status::timeout;
  watching_ = false;
  if (!over || begun_ != begun || running_ == blocked_) return;
  blocked_up_to_ = begun_;
  blocked_ = running_;
}

}  // namespace weft::engine
