// Stream: operations that run one after the other while the caller goes on. Different streams are in flight
// together.
//
// Thread safety: all methods. Lock order: a context's lock may be held when a stream's is taken, never the
// other way round.
#pragma once

#include <deque>
#include <mutex>

#include "base/status.h"
#include "engine/operation.h"

namespace weft::engine {

class Stream {
 public:
  Stream() = default;
  /// Waits for what is queued.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Queues an operation, with a reference of its own, and submits it if it is first.
  void push(Operation* op);
  /// Called by the context when an operation has ended, or was cancelled while it was queued. If it was the
  /// first, the next is submitted.
  void on_finished(Operation& op);
  /// Waits until all that was queued before the call has ended, driving it. The first failure since the last
  /// call.
  Status synchronize();
  /// ok when all is done (or the first failure), in_progress otherwise.
  Status query();

 private:
  std::mutex mutex_;
  std::deque<Operation*> queue_;  // the first is active or submitted
  Status first_failure_;
};

}  // namespace weft::engine
