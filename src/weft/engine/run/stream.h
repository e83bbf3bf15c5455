// Stream: operations that run one after the other while the caller goes on. Those of one group are a batch:
// they run together, since each may wait for another of them, on this rank or a peer. Different streams are
// in flight together.
//
// Thread safety: all methods. Lock order: a context's lock may be held when a stream's is taken, never the
// other way round.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/run/notifier.h"
#include "engine/run/operation.h"

namespace weft::engine {

class Stream {
 public:
  Stream() = default;
  /// Waits for what is queued, and until all that notify() was given has been called.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// A name for the operations of one call or group.
  static uint64_t new_batch();
  /// Queues an operation, with a reference of its own, and submits it if its batch is the first.
  void push(Operation* op, uint64_t batch);
  /// Whether nothing is queued.
  bool idle();
  /// Queues an operation that was started already, with a reference of its own.
  void adopt(Operation* op, uint64_t batch);
  /// Counts an operation that ended without being queued.
  void count_ended(const Status& outcome);
  /// Called by the context when an operation has ended, or was cancelled while it was queued. If it was the
  /// last of the first batch, the next one is submitted.
  void on_finished(Operation& op);
  /// How many operations have been queued.
  uint64_t position();
  /// Waits until the first `position` operations have ended, driving them. The first failure since the last
  /// call; in_progress if the deadline passes before.
  Status synchronize(uint64_t position = UINT64_MAX, Deadline deadline = Deadline::never());
  /// ok when the first `position` operations have ended (or the first failure), in_progress otherwise.
  Status query(uint64_t position = UINT64_MAX);
  /// Calls `call` on a thread of the Notifier when all that is queued now has ended, with the first failure
  /// of what was queued since the notify() before. Errors: system_error without a thread for it.
  using Notice = std::function<void(const Status&)>;
  Status notify(Notice call);

 private:
  struct Entry {
    Operation* op;
    uint64_t batch;
    uint64_t position;
    bool submitted = false;
  };
  struct Waiting {
    uint64_t position;
    Status outcome;
    Notice call;
  };
  bool has_ended(uint64_t position) const WEFT_REQUIRES(mutex_) {
    return queue_.empty() || queue_.front().position > position;
  }
  void append(Operation* op, uint64_t batch, bool submitted) WEFT_REQUIRES(mutex_);
  /// A failure of the operation at `position`.
  void note_failure(uint64_t position, const Status& status) WEFT_REQUIRES(mutex_);
  void post(Waiting notice) WEFT_REQUIRES(mutex_);
  void submit_first_batch() WEFT_REQUIRES(mutex_);

  Mutex mutex_;
  std::list<Entry> queue_ WEFT_GUARDED_BY(mutex_);
  // Nodes that were used, as many as were ever queued at once.
  std::list<Entry> spare_ WEFT_GUARDED_BY(mutex_);
  uint64_t position_ WEFT_GUARDED_BY(mutex_) = 0;
  Status first_failure_ WEFT_GUARDED_BY(mutex_);
  std::shared_ptr<Notifier> notifier_ WEFT_GUARDED_BY(mutex_);  // from the first notify() on
  std::deque<Waiting> notices_ WEFT_GUARDED_BY(mutex_);
  size_t not_called_ WEFT_GUARDED_BY(mutex_) = 0;  // of these and of what was posted
  Status unnoticed_ WEFT_GUARDED_BY(mutex_);       // the first failure that no notice will tell yet
  std::condition_variable_any all_called_;
};

}  // namespace weft::engine
