// Context: one rank's membership in a job. The communicator that joined and all that are split from it share
// the context. It owns the bootstrap, the fabric, the operations in flight, and the lock over all of them. It
// decides in which order its parts act in a turn, and where an operation begins and ends. Its parts do the
// rest:
//
//   OperationTable    which operations are active, and which one a message is for
//   Inbox             messages, early ones among them
//   Submissions       what other threads hand over
//   Waiting           how threads wait: working, asleep, or by the progress thread;  Sleepers  whom to wake
//   WindowTraffic     open windows, and puts that are announced to them
//   Failures          losses of peers, reports of failures, deadlines;  LostMemory  buffers freed too early
//   Workspace         scratch and staging on the host;  DeviceOperations  what GPU memory takes besides
//
// Thread safety: the annotations say which methods need the context's lock (context_lock.h). The lock order
// is: context, then stream or captured calls, then a context's submissions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "bootstrap/bootstrap.h"
#include "engine/context/context_lock.h"
#include "engine/context/fabric.h"
#include "engine/context/inbox.h"
#include "engine/context/operation_table.h"
#include "engine/context/sleepers.h"
#include "engine/context/submissions.h"
#include "engine/context/waiting.h"
#include "engine/context/window_traffic.h"
#include "engine/failure/failures.h"
#include "engine/failure/lost_memory.h"
#include "engine/gpu/device_operations.h"
#include "engine/record/trace.h"
#include "engine/run/workspace.h"
#include "model/cost.h"

namespace weft::engine {

class Communicator;

/// The machine that the cost models of a job's ranks use. The ranks agree on it when they meet
/// (job/tuning.h).
struct JobMachine {
  model::Machine machine;
  /// On rank 0: why the measurement should be repeated; "" = it need not.
  std::string doubt;
  bool wants_measuring = false;  // `machine` is only what to begin with
  bool tunes = false;            // choices may rest on measurements: rank 0's WEFT_TUNE is not off
};

class Context final : public std::enable_shared_from_this<Context> {
 public:
  /// Joins a job: a collective of all its ranks. Peers may not be ready when it returns: the ranks meet once
  /// more over the bootstrap before begin(). `host_id` and `cuda_device`: see Fabric.
  static Result<std::shared_ptr<Context>> join(const bootstrap::UniqueId& id, int rank, int ranks,
                                               const std::string& host_id, int cuda_device,
                                               Deadline deadline);
  /// A member of a job whose ranks are reached by these: join() has them from the job.
  Context(uint64_t job, std::unique_ptr<bootstrap::Bootstrap> bootstrap, std::unique_ptr<Fabric> fabric);
  /// From here on the context is driven and peers' failures are heard of. A collective where any rank writes
  /// a trace. The machine is set.
  Status begin(Deadline deadline);
  ~Context();

  int rank() const { return bootstrap_->rank(); }
  int ranks() const { return bootstrap_->ranks(); }
  /// Tells this job from others; the same on all ranks.
  uint64_t job() const { return job_; }
  Fabric& fabric() { return *fabric_; }
  bootstrap::Bootstrap& bootstrap() { return *bootstrap_; }
  /// Never changed once the first communicator exists.
  JobMachine& machine() { return machine_; }

  /// Takes the context's lock; a thread that spins with it gives way.
  Lock lock() WEFT_RETURNS_LOCK(context_lock) { return Lock(mutex_); }
  /// Whether a thread wants the lock.
  bool lock_is_wanted() const { return mutex_.wanted(); }

  // The parts. Their headers say what their methods need.
  OperationTable& operations() WEFT_REQUIRES(context_lock) { return operations_; }
  const OperationTable& operations() const WEFT_REQUIRES(context_lock) { return operations_; }
  Inbox& inbox() WEFT_REQUIRES(context_lock) { return inbox_; }
  WindowTraffic& window_traffic() WEFT_REQUIRES(context_lock) { return window_traffic_; }
  Sleepers& sleepers() { return sleepers_; }
  Submissions& submissions() { return submissions_; }
  Waiting& waiting() { return waiting_; }
  Failures& failures() { return failures_; }
  LostMemory& lost_memory() WEFT_REQUIRES(context_lock) { return lost_memory_; }
  Workspace& workspace() { return workspace_; }
  DeviceOperations& device_operations() WEFT_REQUIRES(context_lock) { return device_operations_; }
  /// Null unless a trace is being written.
  Trace* trace() const { return trace_.get(); }

  // Communicators, under the lock.
  Communicator* find_communicator(uint32_t id) const WEFT_REQUIRES(context_lock);
  /// By id. A communicator enters itself, and takes itself out.
  std::unordered_map<uint32_t, Communicator*>& communicators() WEFT_REQUIRES(context_lock) {
    return communicators_;
  }

  // Operations, under the lock.
  /// Starts an operation whose turn it is; it may finish right here.
  void start(Operation& op) WEFT_REQUIRES(context_lock);
  /// Advances an active operation, and ends it if that was the last of it. Returns the number of events.
  int advance_one(Operation& op) WEFT_REQUIRES(context_lock);
  /// Fails every operation of a communicator.
  void fail_operations(Communicator& comm, const Status& why) WEFT_REQUIRES(context_lock);

  // Driving, under the lock.
  /// One round: takes in submissions, polls, advances every active operation. Returns the number of events.
  int turn() WEFT_REQUIRES(context_lock);
  /// Whether this turn polls a network without traffic of this rank's operations. Few turns do.
  bool quiet_network_is_due() WEFT_REQUIRES(context_lock) { return ++turns_ % kQuietNetworkTurns == 0; }
  /// What all turns have seen.
  uint64_t events() const WEFT_REQUIRES(context_lock) { return events_; }
  /// Whether a progress thread has work here: operations in flight, data that ended operations have left with
  /// the network or a device, open windows, or a death in its time of grace.
  bool busy() WEFT_REQUIRES(context_lock) {
    return !operations_.empty() || !device_operations_.empty() || submissions_.any() ||
           window_traffic_.listens() || window_traffic_.any_noted() || failures_.any_death() || unsent();
  }
  /// Acts on losses and deadlines that are due; cheap, called a few times a second.
  void check_deadlines(int64_t now_ns) WEFT_REQUIRES(context_lock);
  /// The same if the last time is a while ago.
  void check_if_due(int64_t now_ns) WEFT_REQUIRES(context_lock) {
    if (now_ns - failures_.checked_ns() > kCheckNs) check_deadlines(now_ns);
  }
  /// Whether the network has something of ended operations that needs further polls to get out.
  bool unsent() WEFT_REQUIRES(context_lock) {
    return left_with_network_ && (left_with_network_ = fabric_->unsent());
  }

  // From any thread, without the lock.
  /// Hands over an operation, or the calls of a launched CUDA graph. The next turn starts them.
  template <typename T>
  void submit(T&& submitted) {
    submissions_.submit(std::forward<T>(submitted));
    if (sleepers_.asleep()) sleepers_.ring();
    if (!sleepers_.any_waiting()) waiting_.wake_progress();
  }

 private:
  int take_submissions() WEFT_REQUIRES(context_lock);
  void finish(Operation& op, Status status) WEFT_REQUIRES(context_lock);
  void end_active(Operation& op, Status& status) WEFT_REQUIRES(context_lock);

  const uint64_t job_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<Fabric> fabric_;
  JobMachine machine_;
  std::unique_ptr<Trace> trace_;

  ContextMutex mutex_;

  std::unordered_map<uint32_t, Communicator*> communicators_ WEFT_GUARDED_BY(context_lock);
  Workspace workspace_;
  DeviceOperations device_operations_ WEFT_GUARDED_BY(context_lock);
  OperationTable operations_ WEFT_GUARDED_BY(context_lock);
  LostMemory lost_memory_ WEFT_GUARDED_BY(context_lock);
  Inbox inbox_ WEFT_GUARDED_BY(context_lock);
  WindowTraffic window_traffic_ WEFT_GUARDED_BY(context_lock);
  Submissions submissions_;
  Sleepers sleepers_;
  Waiting waiting_;
  Failures failures_;

  static constexpr uint32_t kQuietNetworkTurns = 64;
  static constexpr int64_t kCheckNs = 100'000'000;  // between two looks at deadlines
  uint32_t turns_ WEFT_GUARDED_BY(context_lock) = 0;
  uint64_t events_ WEFT_GUARDED_BY(context_lock) = 0;
  bool left_with_network_ WEFT_GUARDED_BY(context_lock) =
      false;  // perhaps: since an operation between nodes ended
};

}  // namespace weft::engine
