#include "engine/stream.h"

#include <algorithm>

#include "engine/context.h"

namespace weft::engine {

Stream::~Stream() { (void)synchronize(); }

void Stream::push(Operation* op) {
  std::lock_guard guard(mutex_);
  queue_.push_back(op);
  op->retain();
  if (queue_.size() == 1) op->context->submit(op);
}

void Stream::on_finished(Operation& op) {
  std::lock_guard guard(mutex_);
  if (!op.status.ok() && first_failure_.ok()) first_failure_ = op.status;
  const auto place = std::find(queue_.begin(), queue_.end(), &op);  // the front, unless it was cancelled
  const bool was_first = place == queue_.begin();
  queue_.erase(place);
  // Submitted under the mutex: an operation in the queue keeps its context from being taken apart.
  if (was_first && !queue_.empty()) queue_.front()->context->submit(queue_.front());
}

Status Stream::synchronize() {
  while (true) {
    Operation* head = nullptr;
    std::shared_ptr<Context> context;  // an abort elsewhere may take the communicator apart while we wait
    {
      std::lock_guard guard(mutex_);
      if (queue_.empty()) return std::exchange(first_failure_, Status());
      head = queue_.front();
      context = head->context->shared_from_this();
      head->retain();
    }
    Lock lock = context->lock();
    context->wait(lock, *head);
    context->release(head);
  }
}

Status Stream::query() {
  std::lock_guard guard(mutex_);
  if (!first_failure_.ok()) return std::exchange(first_failure_, Status());
  if (!queue_.empty())
    return fail(Code::in_progress, "{} operations of the stream are unfinished", queue_.size());
  return {};
}

}  // namespace weft::engine
