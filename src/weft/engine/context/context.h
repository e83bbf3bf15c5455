// Context: one rank's membership in a job, shared by the communicator that joined and all that are split from
// it: the bootstrap, the fabric, the operations in flight, and the lock over all of them. It orders what its
// parts do in a turn, and where an operation begins and ends; the rest is theirs:
//
//   OperationTable    which operations are active, and which one a message is for
//   Inbox             messages, early ones among them
//   Submissions       what other threads hand over
//   Sleepers          threads that wait, and how they are woken
//   StreakWatch       back-to-back calls whose messages share writes
//   Failures          losses of peers, reports of failures, deadlines;  LostMemory  buffers freed too early
//   Workspace         scratch and staging on the host;  DeviceOperations  what GPU memory takes besides
//
// Whoever waits, works: a thread that blocks on an operation calls wait(), which drives the fabric and every
// active operation of the context until its own is finished. Progress threads (progress.h) drive a context
// only while it has active operations and nobody waits in it.
//
// Thread safety: methods say what they need. The lock order is: context, then stream or captured calls, then
// a context's submissions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/biased_mutex.h"
#include "bootstrap/bootstrap.h"
#include "engine/context/fabric.h"
#include "engine/context/inbox.h"
#include "engine/context/operation_table.h"
#include "engine/context/sleepers.h"
#include "engine/context/streak_watch.h"
#include "engine/context/submissions.h"
#include "engine/failure/failures.h"
#include "engine/failure/lost_memory.h"
#include "engine/gpu/device_operations.h"
#include "engine/record/trace.h"
#include "engine/run/workspace.h"
#include "model/cost.h"

namespace weft::engine {

class Communicator;
class ProgressThread;

/// What the cost model takes a job's machine to be, as its ranks have agreed on when they met (job/tuning.h).
struct JobMachine {
  model::Machine machine;
  /// On rank 0: why what it has measured should be measured again; "" = it need not.
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
  Lock lock() {
    if (Lock lock(mutex_, std::try_to_lock); lock) [[likely]]
      return lock;
    return lock_slowly();
  }
  /// Whether a thread wants the lock.
  bool lock_is_wanted() const { return wanting_.load(std::memory_order_relaxed) != 0; }

  // The parts; what they need is theirs to say.
  OperationTable& operations() { return operations_; }
  const OperationTable& operations() const { return operations_; }
  Inbox& inbox() { return inbox_; }
  Sleepers& sleepers() { return sleepers_; }
  const Sleepers& sleepers() const { return sleepers_; }
  Submissions& submissions() { return submissions_; }
  StreakWatch& streak() { return streak_; }
  Failures& failures() { return failures_; }
  LostMemory& lost_memory() { return lost_memory_; }
  Workspace& workspace() { return *workspace_; }
  DeviceOperations& device_operations() { return device_operations_; }
  /// Null unless a trace is being written.
  Trace* trace() const { return trace_.get(); }

  // Communicators, under the lock.
  void attach(Communicator& comm);
  void detach(Communicator& comm);
  Communicator* find_communicator(uint32_t id) const;
  const std::unordered_map<uint32_t, Communicator*>& communicators() const { return communicators_; }

  // Operations, under the lock.
  /// Starts an operation whose turn it is; it may finish right here.
  void start(Operation& op);
  /// Advances an active operation, and ends it if that was the last of it. Returns the number of events.
  int advance_one(Operation& op);
  /// Fails every operation of a communicator.
  void fail_operations(Communicator& comm, const Status& why);
  /// Drives the context until `op` is finished, or the deadline has passed. The lock may be given up and
  /// taken again on the way.
  void wait(Lock& lock, Operation& op, Deadline deadline = Deadline::never());
  /// How an operation has ended, which this call waits for. The caller releases it.
  Status result_of(Lock& lock, Operation& op) {
    if (op.finished.load(std::memory_order_acquire)) leave();
    else wait(lock, op);
    return op.status;
  }

  // Driving, under the lock.
  /// One round: takes in submissions, polls, advances every active operation. Returns the number of events.
  int turn();
  /// Whether a network without traffic of ours is to be looked at in this turn: it is looked at seldom.
  bool quiet_network_is_due() { return ++turns_ % kQuietNetworkTurns == 0; }
  /// What all turns have seen.
  uint64_t events() const { return events_; }
  /// Whether a progress thread has anything to look after here. That is also what ended operations have left
  /// with the network or a device, and a death that waits for the end of its time of grace: nobody else may
  /// come by.
  bool busy() {
    return !operations_.empty() || !device_operations_.empty() || submissions_.any() ||
           failures_.any_death() || unsent();
  }
  /// Whether operations of GPU memory are in flight, which no descriptor tells of.
  bool device_is_busy() const { return operations_.uses_device(); }
  /// Whether a sleeper is woken by all that is waited for, at once, and no peer waits for what it would do
  /// meanwhile: of a network, not of shared memory alone, where owners help with reads.
  bool rings() const { return operations_.uses_network() && nap_us() < 0; }
  /// Acts on losses and deadlines that are due; cheap, called a few times a second.
  void check_deadlines(int64_t now_ns);
  /// Sleeping on epoll_fd(): begin_sleep() is false when there is something to do. `op`: what the sleeper
  /// waits for; null: it is a progress thread.
  bool begin_sleep(const Operation* op = nullptr);
  void end_sleep();

  // From any thread, without the lock.
  /// Hands over an operation, or calls that a CUDA graph has come to, to be started at the next turn.
  template <typename T>
  void submit(T&& submitted) {
    submissions_.submit(std::forward<T>(submitted));
    if (sleepers_.asleep()) sleepers_.ring();
    if (!sleepers_.any_waiting()) wake_progress();
  }
  void wake_progress();
  /// Writes the flight recorder of every communicator.
  void dump_all();
  int epoll_fd() const { return fabric_->epoll_fd(); }
  /// The longest sleep that is safe, as a CUDA stream or a provider of the network may not wake us; -1 = any.
  int nap_us() const;
  /// For the progress thread: see StreakWatch.
  bool streak_is_due(int64_t now_ns) {
    return streak_.due(now_ns, [this] { return fabric_->waits_since(); });
  }

 private:
  Context();

  Status open_trace(Deadline deadline);
  Lock lock_slowly();
  /// Whether the network has something of ended operations that needs further polls to get out.
  bool unsent() { return left_with_network_ && (left_with_network_ = fabric_->unsent()); }
  /// For a caller whose operation ended without a wait(): what it has left with the network goes on.
  void leave() {
    if (unsent() && !sleepers_.any_waiting()) hand_on();
  }
  void hand_on();
  int take_submissions();
  bool watches_device() const { return operations_.uses_device() || !device_operations_.empty(); }
  void finish(Operation& op, Status status);
  void end_active(Operation& op, Status& status);
  void sleep(Lock& lock, const Operation& op, Deadline deadline);

  ProgressThread* home_ = nullptr;
  uint64_t job_ = 0;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<Fabric> fabric_;
  JobMachine machine_;
  std::unique_ptr<Trace> trace_;

  BiasedMutex mutex_;
  std::atomic<int> wanting_{0};  // threads that want the lock

  std::unordered_map<uint32_t, Communicator*> communicators_;
  std::unique_ptr<Workspace> workspace_;
  DeviceOperations device_operations_;
  OperationTable operations_;
  LostMemory lost_memory_;
  Inbox inbox_;
  Submissions submissions_;
  Sleepers sleepers_;
  StreakWatch streak_;
  Failures failures_;

  static constexpr uint32_t kQuietNetworkTurns = 64;
  uint32_t turns_ = 0;
  uint64_t events_ = 0;
  bool left_with_network_ = false;  // perhaps: since an operation between nodes ended
};

}  // namespace weft::engine
