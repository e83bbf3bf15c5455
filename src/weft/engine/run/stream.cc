#include "engine/run/stream.h"

#include <algorithm>
#include <atomic>

#include "base/mutex.h"
#include "engine/context/context.h"

namespace weft::engine {

Stream::~Stream() {
  (void)synchronize();
  MutexLock lock(mutex_);
  while (not_called_ != 0) all_called_.wait(lock);
}

uint64_t Stream::new_batch() {
  static std::atomic<uint64_t> batches{0};
  return batches.fetch_add(1, std::memory_order_relaxed);
}

void Stream::append(Operation* op, uint64_t batch, bool submitted) {
  if (spare_.empty()) spare_.emplace_back();
  spare_.front() = {op, batch, ++position_, submitted};
  queue_.splice(queue_.end(), spare_, spare_.begin());
  op->retain();
}

void Stream::push(Operation* op, uint64_t batch) {
  const MutexLock guard(mutex_);
  append(op, batch, false);
  if (queue_.front().batch == batch) submit_first_batch();
}

bool Stream::idle() {
  const MutexLock guard(mutex_);
  return queue_.empty();
}

void Stream::adopt(Operation* op, uint64_t batch) {
  const MutexLock guard(mutex_);
  append(op, batch, true);
}

void Stream::count_ended(const Status& outcome) {
  const MutexLock guard(mutex_);
  ++position_;
  if (!outcome.ok()) note_failure(position_, outcome);
}

// Submitted under the mutex: an operation in the queue keeps its context from being taken apart.
void Stream::submit_first_batch() {
  for (Entry& entry : queue_) {
    if (entry.batch != queue_.front().batch) return;
    if (!entry.submitted) entry.op->context->submit(entry.op);
    entry.submitted = true;
  }
}

void Stream::on_finished(Operation& op) {
  const MutexLock guard(mutex_);
  const auto ended =
      std::find_if(queue_.begin(), queue_.end(), [&](const Entry& entry) { return entry.op == &op; });
  if (!op.end.status.ok()) note_failure(ended->position, op.end.status);
  spare_.splice(spare_.begin(), queue_, ended);
  submit_first_batch();
  for (; !notices_.empty() && has_ended(notices_.front().position); notices_.pop_front())
    post(std::move(notices_.front()));
}

void Stream::note_failure(uint64_t position, const Status& status) {
  if (first_failure_.ok()) first_failure_ = status;
  const auto covers = [&](const Waiting& notice) { return notice.position >= position; };
  const auto notice = std::find_if(notices_.begin(), notices_.end(), covers);
  Status& told = notice == notices_.end() ? unnoticed_ : notice->outcome;
  if (told.ok()) told = status;
}

Status Stream::notify(Notice call) {
  const MutexLock guard(mutex_);
  if (!notifier_) {
    auto notifier = Notifier::of_process();
    if (!notifier) return notifier.status();
    notifier_ = notifier.take();
  }
  ++not_called_;
  Waiting notice{position_, std::exchange(unnoticed_, Status()), std::move(call)};
  if (queue_.empty()) post(std::move(notice));
  else notices_.push_back(std::move(notice));
  return {};
}

void Stream::post(Waiting notice) {
  notifier_->post([this, notice = std::move(notice)] {
    notice.call(notice.outcome);
    const MutexLock guard(mutex_);
    if (--not_called_ == 0) all_called_.notify_all();
  });
}

uint64_t Stream::position() {
  const MutexLock guard(mutex_);
  return position_;
}

// The first of the queue is the earliest that has not ended.
Status Stream::synchronize(uint64_t position, Deadline deadline) {
  while (true) {
    Operation* head = nullptr;
    std::shared_ptr<Context> context;  // an abort elsewhere may take the communicator apart while we wait
    {
      const MutexLock guard(mutex_);
      if (has_ended(position)) return std::exchange(first_failure_, Status());
      if (deadline.passed()) return fail(Code::in_progress, "{} operations are unfinished", queue_.size());
      head = queue_.front().op;
      context = head->context->shared_from_this();
      head->retain();
    }
    Lock lock = context->lock();
    context->waiting().wait(lock, *head, deadline);
    context->operations().release(head);
  }
}

Status Stream::query(uint64_t position) {
  const MutexLock guard(mutex_);
  if (!first_failure_.ok()) return std::exchange(first_failure_, Status());
  if (!has_ended(position))
    return fail(Code::in_progress, "{} operations of the stream are unfinished", queue_.size());
  return {};
}

}  // namespace weft::engine
