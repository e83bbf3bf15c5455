// Stream: operations that run one after the other while the caller goes on. Those of one group are a batch:
// they run together, since each may wait for another of them, on this rank or a peer. Different streams are
// in flight together.
//
// Thread safety: all methods. Lock order: a context's lock may be held when a stream's is taken, never the
// other way round.
#pragma once

#include <list>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/run/operation.h"

namespace weft::engine {

class Stream {
 public:
  Stream() = default;
  /// Waits for what is queued.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// A name for the operations of one call or group.
  static uint64_t new_batch();
  /// Queues an operation, with a reference of its own, and submits it if its batch is the first.
  void push(Operation* op, uint64_t batch);
  /// Called by the context when an operation has ended, or was cancelled while it was queued. If it was the
  /// last of the first batch, the next one is submitted.
  void on_finished(Operation& op);
  /// How many operations have been queued.
  uint64_t position();
  /// Waits until the first `position` operations have ended, driving them. The first failure since the last
  /// call.
  Status synchronize(uint64_t position = UINT64_MAX);
  /// ok when all is done (or the first failure), in_progress otherwise.
  Status query();

 private:
  struct Entry {
    Operation* op;
    uint64_t batch;
    uint64_t position;
    bool submitted = false;
  };
  void submit_first_batch() WEFT_REQUIRES(mutex_);

  Mutex mutex_;
  std::list<Entry> queue_ WEFT_GUARDED_BY(mutex_);
  std::list<Entry> spare_
      WEFT_GUARDED_BY(mutex_);  // nodes that were used, as many as were ever queued at once
  uint64_t position_ WEFT_GUARDED_BY(mutex_) = 0;
  Status first_failure_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::engine
