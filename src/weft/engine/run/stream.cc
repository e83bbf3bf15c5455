#include "engine/run/stream.h"

#include <algorithm>
#include <atomic>

#include "base/mutex.h"
#include "engine/context/context.h"

namespace weft::engine {

Stream::~Stream() { (void)synchronize(); }

uint64_t Stream::new_batch() {
  static std::atomic<uint64_t> batches{0};
  return batches.fetch_add(1, std::memory_order_relaxed);
}

void Stream::push(Operation* op, uint64_t batch) {
  const MutexLock guard(mutex_);
  if (spare_.empty()) spare_.emplace_back();
  spare_.front() = {op, batch, ++position_};
  queue_.splice(queue_.end(), spare_, spare_.begin());
  op->retain();
  if (queue_.front().batch == batch) submit_first_batch();
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
  if (!op.end.status.ok() && first_failure_.ok()) first_failure_ = op.end.status;
  const auto ended =
      std::find_if(queue_.begin(), queue_.end(), [&](const Entry& entry) { return entry.op == &op; });
  spare_.splice(spare_.begin(), queue_, ended);
  submit_first_batch();
}

uint64_t Stream::position() {
  const MutexLock guard(mutex_);
  return position_;
}

// The first of the queue is the earliest that has not ended.
Status Stream::synchronize(uint64_t position) {
  while (true) {
    Operation* head = nullptr;
    std::shared_ptr<Context> context;  // an abort elsewhere may take the communicator apart while we wait
    {
      const MutexLock guard(mutex_);
      if (queue_.empty() || queue_.front().position > position)
        return std::exchange(first_failure_, Status());
      head = queue_.front().op;
      context = head->context->shared_from_this();
      head->retain();
    }
    Lock lock = context->lock();
    context->wait(lock, *head);
    context->operations().release(head);
  }
}

Status Stream::query() {
  const MutexLock guard(mutex_);
  if (!first_failure_.ok()) return std::exchange(first_failure_, Status());
  if (!queue_.empty())
    return fail(Code::in_progress, "{} operations of the stream are unfinished", queue_.size());
  return {};
}

}  // namespace weft::engine
