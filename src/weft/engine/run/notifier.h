// Notifier: the threads that call what was asked to be called when a stream has come to a position. Calls
// begin one after the other, in the order in which they were posted. One that blocks holds the others up for
// a millisecond, then another thread goes on with them: a callback may wait for operations whose callbacks
// wait, and so on.
//
// Thread safety: all methods. The mutex is a leaf: post() may be called under a context's and a stream's
// lock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::engine {

class Notifier {
 public:
  using Call = std::function<void()>;

  /// The process's, which lives as long as somebody has it; a forked child has one of its own.
  static std::shared_ptr<Notifier> of_process();
  /// Whether the calling thread is inside of a call.
  static bool is_calling_here();

  Notifier() = default;
  /// Nothing is posted any more, and every call has ended.
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  void post(Call call);

 private:
  void run();
  void carry_out_first(std::unique_lock<std::mutex>& lock);
  void watch(std::unique_lock<std::mutex>& lock);
  void call_for_another();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool watching_ = false;  // a thread sees to it that calls behind one that blocks go on
  bool stopping_ = false;
  uint64_t begun_ = 0;          // calls so far
  uint64_t blocked_up_to_ = 0;  // of these, so many are taken to block if they have not ended
  size_t running_ = 0;          // calls that have not ended
  size_t blocked_ = 0;          // of these, how many are taken to block
};

}  // namespace weft::engine
