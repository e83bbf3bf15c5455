#include "async_queue.h"

#include <pthread.h>

#include <utility>

#include "work.h"

namespace weft_torch {

namespace {
// Callbacks that wait for operations whose callbacks wait, and so on, need a thread for each level.
constexpr size_t kMaxThreads = 16;
}  // namespace

AsyncQueue::AsyncQueue(std::function<std::string(weftResult_t)> sentence) : sentence_(std::move(sentence)) {
  weftResult_t made = weftStreamCreate(&stream_);
  if (made != weftSuccess) std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
}

AsyncQueue::~AsyncQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  weftStreamDestroy(stream_);
}

void AsyncQueue::push(Completion completion) {
  uint64_t position = 0;
  weftStreamGetPosition(stream_, &position);
  std::lock_guard<std::mutex> lock(mutex_);
  items_.push_back({position, std::move(completion)});
  ensure_waiter();
}

void AsyncQueue::ensure_waiter() {
  if (waiting_ || items_.empty()) return;
  if (idle_ > 0) {
    changed_.notify_one();
  } else if (threads_.size() < kMaxThreads && !stopping_) {
    threads_.emplace_back([this] { run(); });
    pthread_setname_np(threads_.back().native_handle(), "weft_torch");
  }
}

std::exception_ptr AsyncQueue::outcome(weftResult_t result) {
  // The stream reports a failure once; what comes behind it on this communicator has failed as well.
  if (!failure_ && result != weftSuccess) failure_ = backend_error(sentence_(result));
  return failure_;
}

void AsyncQueue::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return (!items_.empty() && !waiting_) || (stopping_ && items_.empty()); });
    --idle_;
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    waiting_ = true;
    lock.unlock();
    if (item.completion.complete(outcome(weftStreamSynchronizeTo(stream_, item.position)))) {
      lock.lock();
      waiting_ = false;
      ensure_waiter();
      lock.unlock();
      item.completion.callbacks();
      item.completion = {};  // lets go of the tensors, outside the lock
      lock.lock();
    } else {
      // Nothing can block this thread, so no other one is woken.
      item.completion = {};
      lock.lock();
      waiting_ = false;
    }
    if (stopping_ && items_.empty()) changed_.notify_all();
  }
}

}  // namespace weft_torch
