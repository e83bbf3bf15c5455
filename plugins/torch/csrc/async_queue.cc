#include "async_queue.h"

#include <c10/util/Logging.h>

#include <utility>

#include "python_access.h"
#include "work.h"

namespace weft_torch {

namespace {

constexpr double kSilentSeconds = 5;

// Runs the callbacks and releases the tensors. While Python ends, it leaves both out, and the tensors stay.
void release(AsyncQueue::Completion completion) {
  const PythonAccess python;
  if (!python.allowed()) {
    new AsyncQueue::Completion(std::move(completion));
    return;
  }
  if (completion.callbacks) completion.callbacks();
  completion = {};
}

// Does not leave a user alone with a program that seems to hang.
void wait_for_end(weftStream_t stream) {
  uint64_t all = 0;
  weftStreamGetPosition(stream, &all);
  if (weftStreamWait(stream, all, kSilentSeconds) != weftInProgress) return;
  LOG(WARNING) << "A group of weft ends, and waits for operations that have begun, such as an irecv that no "
                  "rank has sent for: "
                  "at most for the timeout of the group. torch.distributed.group.WORLD.abort() before "
                  "destroy_process_group() would end them at once.";
  weftStreamSynchronize(stream);
}

}  // namespace

AsyncQueue::AsyncQueue(std::function<std::string(weftResult_t)> sentence, std::function<bool()> healthy)
    : sentence_(std::move(sentence)), healthy_(std::move(healthy)) {
  weftResult_t made = weftStreamCreate(&stream_);
  if (made != weftSuccess) std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
}

AsyncQueue::~AsyncQueue() { close(); }

void AsyncQueue::close() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
    watch_last();
  }
  wait_for_end(stream_);  // so threads that wait come back
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return driving_ == 0; });
  }
  weftStreamDestroy(stream_);  // waits for callbacks
}

bool AsyncQueue::idle() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!items_.empty()) return false;
  }
  return weftStreamQuery(stream_) == weftSuccess;
}

uint64_t AsyncQueue::push(Completion completion, bool watched) {
  auto item = std::make_shared<Item>();
  item->queue = shared_from_this();
  item->completion = std::move(completion);
  weftStreamGetPosition(stream_, &item->position);
  const uint64_t position = item->position;
  std::lock_guard<std::mutex> lock(mutex_);
  unwatched_ = item;
  items_.push_back(std::move(item));
  if (watched) watch_last();
  return position;
}

bool AsyncQueue::watch() {
  std::lock_guard<std::mutex> lock(mutex_);
  return watch_last();
}

void AsyncQueue::watch_after(uint64_t position, double seconds) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!unwatched_ || unwatched_->position != position) return;
  }
  drive(position, seconds);
  std::lock_guard<std::mutex> lock(mutex_);
  if (unwatched_ && unwatched_->position == position && !watch_last()) throw_unwatched();
}

bool AsyncQueue::watch_last() {
  if (!unwatched_) return true;
  auto item = std::make_unique<std::shared_ptr<Item>>(unwatched_);
  if (weftStreamNotify(stream_, on_end, item.get()) != weftSuccess) return false;
  item.release();  // on_end() deletes it
  unwatched_ = nullptr;
  return true;
}

void throw_unwatched() { std::rethrow_exception(backend_error(weftGetLastError(nullptr))); }

std::shared_ptr<AsyncQueue::Item> AsyncQueue::complete_first(std::unique_lock<std::mutex>& lock,
                                                             std::exception_ptr error) {
  std::shared_ptr<Item> first = items_.front();
  first->begun = true;
  lock.unlock();
  first->has_callbacks = first->completion.complete(std::move(error));
  lock.lock();
  items_.pop_front();
  changed_.notify_all();
  return first;
}

void AsyncQueue::on_end(weftResult_t result, void* arg) {
  std::unique_ptr<std::shared_ptr<Item>> kept(static_cast<std::shared_ptr<Item>*>(arg));
  const std::shared_ptr<Item> item = *kept;
  AsyncQueue& queue = *item->queue;
  std::exception_ptr error = result == weftSuccess ? nullptr : backend_error(queue.sentence_(result));
  Completion completion;  // empty if a thread that waited has released it
  {
    std::unique_lock<std::mutex> lock(queue.mutex_);
    // A thread that waits may be completing this one, or one before it.
    queue.changed_.wait(lock, [&] {
      return queue.items_.empty() || queue.items_.front()->position > item->position ||
             (queue.items_.front() == item && !item->begun);
    });
    if (!item->begun) queue.complete_first(lock, std::move(error));
    completion = std::exchange(item->completion, {});
  }
  release(std::move(completion));
}

void AsyncQueue::drive(uint64_t position, double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (closed_) return;
  ++driving_;
  lock.unlock();
  // The stream returns a failure once, to the first question. So only operations that certainly succeeded
  // are completed here.
  const bool succeeded = weftStreamWait(stream_, position, seconds) == weftSuccess && healthy_();
  lock.lock();
  while (succeeded && !items_.empty() && items_.front()->position <= position && !items_.front()->begun) {
    // No callback comes for what is not watched.
    const bool watched = items_.front() != unwatched_;
    if (!watched) unwatched_ = nullptr;
    const std::shared_ptr<Item> ended = complete_first(lock, nullptr);
    // Callbacks may wait for what this thread does next, so Weft's thread runs them. Tensors are better
    // released here: Weft's thread may not release them while Python ends.
    if (watched && ended->has_callbacks) continue;
    Completion completion = std::exchange(ended->completion, {});
    lock.unlock();
    release(std::move(completion));
    lock.lock();
  }
  // A thread that completes an earlier item completes no others: the last one has a callback, or this thread.
  if (!succeeded || (unwatched_ && unwatched_->position <= position)) watch_last();
  --driving_;
  changed_.notify_all();
}

}  // namespace weft_torch
