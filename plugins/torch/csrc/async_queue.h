// A stream of Weft, and threads that wait for its operations and complete their Works. It does not start
// operations: the backend does, on stream().
#ifndef WEFT_TORCH_ASYNC_QUEUE_H_
#define WEFT_TORCH_ASYNC_QUEUE_H_

#include <weft/weft.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weft_torch {

// Thread safety: push() from one thread at a time, together with what puts operations on the stream.
// Invariants: at most one thread waits for the stream; operations are complete()d in their order. callbacks()
// run without a lock, and one that waits for a later operation of the queue does not hang: another thread
// takes over.
class AsyncQueue {
 public:
  struct Completion {
    std::function<bool(std::exception_ptr)> complete;  // returns whether there is need of callbacks()
    std::function<void()> callbacks;
  };

  // `sentence` says what a result means, as the communicator's last error.
  explicit AsyncQueue(std::function<std::string(weftResult_t)> sentence);
  // Waits for what was pushed.
  ~AsyncQueue();
  AsyncQueue(const AsyncQueue&) = delete;
  AsyncQueue& operator=(const AsyncQueue&) = delete;

  weftStream_t stream() const { return stream_; }
  // Calls complete(), then callbacks() if needed, when everything that is on the stream now is complete.
  void push(Completion completion);

 private:
  struct Item {
    uint64_t position;
    Completion completion;
  };

  void run();
  void ensure_waiter();  // holding mutex_
  std::exception_ptr outcome(weftResult_t result);

  const std::function<std::string(weftResult_t)> sentence_;
  weftStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::vector<std::thread> threads_;
  int idle_ = 0;
  bool waiting_ = false;  // a thread waits for the stream
  bool stopping_ = false;
  std::exception_ptr failure_;  // written by the thread that waits; once there, later operations have it, too
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_ASYNC_QUEUE_H_
