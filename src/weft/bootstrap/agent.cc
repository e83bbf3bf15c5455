// The agent's thread: when it starts and when it ends.
#include "bootstrap/agent.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <system_error>
#include <thread>
#include <vector>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/thread.h"

namespace weft::bootstrap {
namespace {

class Agent {
 public:
  static Agent& instance() {
    // What the thread reads must outlive it: statics end in the reverse order of their beginning.
    settings();
    log::enabled(LogLevel::warn);
    // Never destroyed: uses in static storage may be given up after this.
    static Agent& agent = *new Agent;
    static const struct AtExit {
      ~AtExit() { agent.end_for_good(); }
    } at_exit;
    return agent;
  }

  Result<std::shared_ptr<EventLoop>> begin_use() {
    std::vector<std::thread> ending;
    const MutexLock lock(mutex_);
    if (over_) return fail(Code::invalid_usage, "the process is exiting");
    forget_if_forked();
    ending.swap(retired_);
    for (std::thread& each : ending) join_or_leave(each);
    if (running_ == nullptr) WEFT_TRY(start());
    ++uses_;
    return running_;
  }

  void end_use() {
    std::thread ending;
    {
      const MutexLock lock(mutex_);
      if (running_ == nullptr || --uses_ > 0) return;
      running_->stop();
      running_.reset();
      ending = std::move(thread_);
      if (ending.get_id() == std::this_thread::get_id()) retired_.push_back(std::move(ending));
    }
    if (ending.joinable()) ending.join();
  }

 private:
  /// At exit. Uses may be left (a root whose job never met, a communicator that nobody destroyed): their
  /// thread ends.
  void end_for_good() {
    std::vector<std::thread> ending;
    {
      const MutexLock lock(mutex_);
      forget_if_forked();
      over_ = true;
      if (running_) running_->stop();
      running_.reset();
      ending.swap(retired_);
      if (thread_.joinable()) ending.push_back(std::move(thread_));
    }
    for (std::thread& each : ending) join_or_leave(each);
  }

  Status start() WEFT_REQUIRES(mutex_) {
    Result<std::shared_ptr<EventLoop>> loop = EventLoop::create();
    if (!loop.ok()) return loop.status();
    // Signals are the program's: no handler of it should run here.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Result<std::thread> thread = start_thread("weft-bootstrap", [loop = *loop] { loop->loop(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread.ok()) return thread.status();
    thread_ = thread.take();
    running_ = loop.take();
    process_ = getpid();
    return {};
  }

  /// A forked child has a copy of the agent, but not its thread. What the thread served stays the parent's:
  /// the copy is let go of unread, and the child's first use starts an agent of its own.
  void forget_if_forked() WEFT_REQUIRES(mutex_) {
    if (process_ == 0 || process_ == getpid()) return;
    // Closing anything here could end a job there, and the C library may have unmapped what it knows of the
    // threads. The list is reachable for ever, so that it is no leak.
    struct Left {
      std::shared_ptr<EventLoop> loop;
      std::thread thread;
      std::vector<std::thread> retired;
    };
    static auto* const left = new std::vector<Left>;
    left->push_back({std::move(running_), std::move(thread_), std::move(retired_)});
    retired_.clear();
    uses_ = 0;
    process_ = 0;
  }

  /// A thread that ends itself (exit() inside a callback) cannot wait for itself.
  static void join_or_leave(std::thread& thread) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }

  ForkSafeMutex mutex_;
  bool over_ WEFT_GUARDED_BY(mutex_) = false;
  int uses_ WEFT_GUARDED_BY(mutex_) = 0;
  pid_t process_ WEFT_GUARDED_BY(mutex_) = 0;  // that the thread belongs to
  std::shared_ptr<EventLoop> running_ WEFT_GUARDED_BY(mutex_);
  std::thread thread_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::thread> retired_ WEFT_GUARDED_BY(mutex_);  // gave themselves up; joined later
};

}  // namespace

Result<AgentUse> AgentUse::begin() {
  Result<std::shared_ptr<EventLoop>> loop = Agent::instance().begin_use();
  if (!loop.ok()) return loop.status();
  AgentUse use;
  use.loop_ = loop.take();
  return use;
}

void AgentUse::end() {
  if (!loop_) return;
  loop_.reset();
  Agent::instance().end_use();
}

}  // namespace weft::bootstrap
