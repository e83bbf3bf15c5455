// What other threads hand over to a context to be started at its next turn: operations of streams, and calls
// that a CUDA graph has come to. The rest is in context.cc.
#include <unistd.h>

#include "base/log.h"
#include "engine/gpu/captured_calls.h"
#include "engine/context/context.h"
#include "engine/context/progress.h"

namespace weft::engine {

void Context::submit(Operation* op) {
  op->retain();
  {
    std::lock_guard guard(submissions_mutex_);
    submissions_.push_back(op);
    has_submissions_.store(true);
  }
  ring();
}

void Context::submit(std::shared_ptr<CapturedCalls> calls) {
  {
    std::lock_guard guard(submissions_mutex_);
    captured_submissions_.push_back(std::move(calls));
    has_submissions_.store(true);
  }
  ring();
}

void Context::ring() {
  if (asleep_.load()) ring_sleeper();
  if (!has_waiters()) wake_progress();
}

void Context::ring_sleeper() const {
  const uint64_t one = 1;
  if (write(doorbell_.get(), &one, sizeof one) < 0) log::trace("doorbell is full");  // it rings already
}

int Context::take_submissions() {
  std::vector<Operation*> submitted = std::exchange(spare_submissions_, {});
  std::vector<std::shared_ptr<CapturedCalls>> captured;
  {
    std::lock_guard guard(submissions_mutex_);
    submitted.swap(submissions_);
    captured.swap(captured_submissions_);
    has_submissions_.store(false);
  }
  const size_t taken = submitted.size() + captured.size();
  for (Operation* op : submitted) {
    start(*op);
    release(op);
  }
  submitted.clear();
  spare_submissions_ = std::move(submitted);
  for (const auto& calls : captured) calls->start();
  return static_cast<int>(taken);
}

}  // namespace weft::engine
