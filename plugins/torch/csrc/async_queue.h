// A stream of Weft whose operations complete their Works. Weft calls back when an operation has ended, so no
// thread waits for it. A thread that waits for a Work drives the stream and completes the Work itself. The
// queue does not start operations: the backend does, on stream().
//
// A callback wakes a thread of Weft. The caller of a short operation mostly waits at once, and then needs no
// callback. So push() may leave it out. watch() asks for it when something other than drive() needs the
// operation's end. The backend calls watch() before it starts the next operation. So at most the last
// operation of a queue is without a callback, and each callback is for one operation.
#ifndef WEFT_TORCH_ASYNC_QUEUE_H_
#define WEFT_TORCH_ASYNC_QUEUE_H_

#include <weft/weft.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace weft_torch {

// Thread safety: push() from one thread at a time, together with what puts operations on the stream; the
// others from any thread. Invariants: operations are complete()d in their order, each once. callbacks() run
// on threads of Weft without a lock, and one that waits for a later operation of the queue does not hang.
class AsyncQueue : public std::enable_shared_from_this<AsyncQueue> {
 public:
  struct Completion {
    std::function<bool(std::exception_ptr)> complete;  // returns whether callbacks() has something to do
    std::function<void()> callbacks;
  };

  // `sentence` says what a result means, as the communicator's last error; `healthy`, whether no operation of
  // the communicator has failed.
  AsyncQueue(std::function<std::string(weftResult_t)> sentence, std::function<bool()> healthy);
  ~AsyncQueue();
  AsyncQueue(const AsyncQueue&) = delete;
  AsyncQueue& operator=(const AsyncQueue&) = delete;

  // Waits for what was pushed. Afterwards only drive() may be called, which does nothing.
  void close();

  weftStream_t stream() const { return stream_; }
  // Whether everything on the stream has succeeded, and nothing that was pushed is left. Then the next
  // operation on the stream need not be pushed if this holds after it, too.
  bool idle();
  // Calls complete(), then callbacks(), when everything that is on the stream now is complete; if not
  // `watched`, not before watch() or drive(). Returns the operations' position.
  uint64_t push(Completion completion, bool watched);
  // Everything that was pushed completes by itself from here on. False if no thread can be started for that;
  // weftGetLastError(nullptr) says so.
  bool watch();
  // The same, but first drives an operation that is not watched, for `seconds` at most. Throws
  // DistBackendError if no thread can be started.
  void watch_after(uint64_t position, double seconds);
  // Drives the stream up to a position that push() returned, for `seconds` at most, and completes what has
  // ended. It leaves items if not all has succeeded, or if another thread is completing one of them. Weft
  // calls back for each item that it leaves.
  void drive(uint64_t position, double seconds);

 private:
  struct Item {
    std::shared_ptr<AsyncQueue> queue;
    uint64_t position = 0;
    Completion completion;
    bool begun = false;          // complete() was, or is being, called
    bool has_callbacks = false;  // what complete() returned
  };

  static void on_end(weftResult_t result, void* item);
  // Holding the lock, which is given up meanwhile: completes the first item, and returns it.
  std::shared_ptr<Item> complete_first(std::unique_lock<std::mutex>& lock, std::exception_ptr error);
  // Holding the lock. Returns what watch() returns.
  bool watch_last();

  const std::function<std::string(weftResult_t)> sentence_;
  const std::function<bool()> healthy_;
  weftStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Item>> items_;  // that are not complete
  std::shared_ptr<Item> unwatched_;          // null: none is
  int driving_ = 0;                          // threads inside drive()
  bool closed_ = false;
};

// Throws why watch() was false, in the same thread.
[[noreturn]] void throw_unwatched();

}  // namespace weft_torch

#endif  // WEFT_TORCH_ASYNC_QUEUE_H_
