#include "engine/stream.h"

#include <algorithm>

#include "engine/context.h"

namespace weft::engine {

Stream::~Stream() { (void)synchronize(); }

void Stream::push(Operation* op) {
  bool first;
  {
    std::lock_guard guard(mutex_);
    first = queue_.empty();
    queue_.push_back(op);
    op->references.fetch_add(1);
  }
  if (first) op->context->submit(op);
}

void Stream::on_finished(Operation& op) {
  Operation* next = nullptr;
  {
    std::lock_guard guard(mutex_);
    if (!op.status.ok() && first_failure_.ok()) first_failure_ = op.status;
    const auto place = std::find(queue_.begin(), queue_.end(), &op);  // the front, unless it was cancelled
    const bool was_first = place == queue_.begin();
    queue_.erase(place);
    if (was_first && !queue_.empty()) next = queue_.front();
  }
  if (next) next->context->submit(next);
}

Status Stream::synchronize() {
  while (true) {
    Operation* head = nullptr;
    {
      std::lock_guard guard(mutex_);
      if (queue_.empty()) return std::exchange(first_failure_, Status());
      head = queue_.front();
      head->references.fetch_add(1);
    }
    Lock lock = head->context->lock();
    head->context->wait(lock, *head);
    head->context->release(head);
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
