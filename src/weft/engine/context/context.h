// Context: one rank's membership in a job, shared by the communicator that joined and all that are split from
// it: the bootstrap, the fabric, the operations in flight, and the lock over all of them.
//
// Whoever waits, works: a thread that blocks on an operation calls wait(), which drives the fabric and every
// active operation of the context until its own is finished. Progress threads (progress.h) drive a context
// only while it has active operations and nobody waits in it.
//
// Thread safety: methods say what they need. The lock order is: context, then stream or captured calls, then
// a context's submissions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/biased_mutex.h"
#include "bootstrap/bootstrap.h"
#include "engine/failure/departures.h"
#include "engine/context/fabric.h"
#include "engine/run/operation.h"
#include "engine/run/scratch.h"
#include "engine/context/stash.h"
#include "engine/record/trace.h"
#include "engine/run/visits.h"
#include "model/cost.h"

namespace weft::engine {

enum class BriefOutcome : uint8_t;
class CapturedCalls;
class Communicator;
class DeviceExecutor;
class ProgressThread;
class ProbeInbox;

/// The number of no operation: of the messages of a probe.
inline constexpr uint32_t kProbeNumber = kCollectiveMask;
using Lock = std::unique_lock<BiasedMutex>;

class Context final : public transport::Sink, public std::enable_shared_from_this<Context> {
 public:
  /// Joins a job: a collective of all its ranks. `host_id` and `cuda_device`: see Fabric; `yields_device`:
  /// see CommOptions.
  static Result<std::shared_ptr<Context>> join(const bootstrap::UniqueId& id, int rank, int ranks,
                                               const std::string& host_id, int cuda_device,
                                               bool yields_device, Deadline deadline);
  ~Context() override;

  int rank() const { return bootstrap_->rank(); }
  /// Tells this job from others; the same on all ranks.
  uint64_t job() const { return job_; }
  int ranks() const { return bootstrap_->ranks(); }
  Fabric& fabric() { return *fabric_; }
  /// Whether every rank has joined with a CUDA device.
  bool all_joined_on_devices() const { return all_on_devices_; }
  bool any_yields_device() const { return any_yields_device_; }
  bootstrap::Bootstrap& bootstrap() { return *bootstrap_; }

  /// Takes the context's lock; a thread that spins with it gives way.
  Lock lock() {
    if (Lock lock(mutex_, std::try_to_lock); lock) [[likely]]
      return lock;
    return lock_slowly();
  }

  // Under the lock.
  void attach(Communicator& comm);
  void detach(Communicator& comm);
  /// A fresh operation from the pool, with one reference.
  Operation* acquire();
  void release(Operation* op);
  /// Starts an operation whose turn it is; it may finish right here.
  void start(Operation& op);
  /// Does a brief operation (Prepared::brief) right here, if nothing else is going on and its messages come
  /// soon. False: it has been started like any other, and has to be waited for.
  bool run_alone(Operation& op);
  /// Ends an operation, however far it is.
  void finish(Operation& op, Status status);
  /// Fails every active operation of a communicator.
  void fail_operations(Communicator& comm, const Status& why);
  /// What is wrong with an operation some of whose memory this thread has found missing
  /// (MemoryWatch::lost()); ok: none of it is.
  Status lost_memory(const Operation& op) const;
  /// Fails a communicator after the poll that is under way: transports are not called back from inside their
  /// own poll().
  void fail_later(Communicator& comm, Status why);
  /// Runs `inquiry` (see verdict.h) on a thread of its own, one at a time; false while another runs.
  bool ask_peers(std::function<void()> inquiry);
  /// The same, after the one that runs. Of each communicator one at most waits: the first.
  void ask_peers_in_turn(uint32_t comm, std::function<void()> inquiry);
  Communicator* find_communicator(uint32_t id);
  /// What another rank has reported of a communicator's failure; ok if nothing. It may be known before
  /// anybody had the lock to act on it.
  Status news_of(const Communicator& comm);
  /// Why a communicator cannot work from its beginning: a member whose death has been acted on; ok if none.
  Status first_loss_of(const Communicator& comm);
  /// Drives the context until `op` is finished. The lock may be given up and taken again on the way.
  void wait(Lock& lock, Operation& op);
  /// One round: takes in submissions, polls, advances every active operation. Returns the number of events.
  int turn();
  /// For a caller whose operation ended without a wait(): what it has left with the network goes on.
  void leave() {
    if (unsent() && !has_waiters()) hand_on();
  }
  /// Whether a progress thread has anything to look after here. That is also what ended operations have left
  /// with the network or a device, and a death that waits for the end of its time of grace: nobody else may
  /// come by.
  bool busy() {
    return !active_.empty() || !awaiting_.empty() || has_submissions_.load(std::memory_order_relaxed) ||
           !deaths_.empty() || has_leftovers_ || unsent();
  }
  /// Takes in an operation whose CUDA stream has still to come to it; turns start it when it has.
  void await_stream(Operation& op);
  /// Whether operations of GPU memory are in flight, which no descriptor tells of.
  bool device_is_busy() const { return device_operations_ > 0; }
  /// Whether a thread sleeps here until its operation is finished.
  bool waiter_sleeps() const { return slept_for_ != nullptr; }

  /// What runs plans on the memory of a CUDA device; made at the first call.
  Result<DeviceExecutor*> device_executor(int ordinal);

  // Memory for the interpreter, under the lock.
  std::byte* bounce(size_t bytes);
  std::vector<const void*>& reduce_sources() { return reduce_sources_; }
  Visitor& visitor() { return visitor_; }
  ScratchPool& scratch() { return scratch_; }
  /// What the cost model takes this job's machine to be: the same on all ranks, and never changed once the
  /// first communicator exists.
  const model::Machine& machine() const { return machine_; }
  /// `machine` was measured; the network is told how much it holds.
  void set_machine(model::Machine machine);
  /// On rank 0: why what it has measured should be measured again; "" = it need not.
  const std::string& machine_doubt() const { return machine_doubt_; }
  void set_machine_doubt(std::string doubt) { machine_doubt_ = std::move(doubt); }
  /// Whether rank 0 found that the machine has to be measured first: see tuning.h.
  bool wants_measuring() const { return wants_measuring_; }
  /// Whether choices may rest on measurements: rank 0's WEFT_TUNE is not off.
  bool tunes() const { return tunes_; }
  /// Who gets messages with the number kProbeNumber; null: nobody.
  void set_probe(ProbeInbox* inbox) { probe_ = inbox; }
  /// Memory that transports may still touch, kept for as long as they exist.
  void keep(std::vector<std::byte> memory) { kept_.push_back(std::move(memory)); }
  /// Null unless a trace is being written.
  Trace* trace() const { return trace_.get(); }

  // From any thread, without the lock.
  /// Hands over an operation to be started at the next turn, with a reference of its own.
  void submit(Operation* op);
  /// The same for calls that a CUDA graph has come to; calls nothing of CUDA, and waits for nothing.
  void submit(std::shared_ptr<CapturedCalls> calls);
  void wake_progress();
  /// Whether it keeps so many early messages that peers who send more may have to wait. Under the lock.
  bool keeps_many() const { return stash_.is_large(); }
  /// Whether nothing goes on here but a row of calls, none of which waits: what they have left with the
  /// network waits for more to come (Fabric::waits_since()). The progress thread does not disturb that, but
  /// looks again soon, for nobody says when a row ends, and calls do not wake it.
  bool in_row() const { return in_row_.load(std::memory_order_relaxed); }
  /// For the progress thread, at each such look: whether a turn is due, as what waits has been left behind,
  /// or for what else may be there. Ends what has not been a row for some time.
  bool look_after_row(int64_t now);
  void end_row() { in_row_.store(false); }
  /// Writes the flight recorder of every communicator.
  void dump_all();
  bool has_waiters() const { return waiters_.load(std::memory_order_relaxed) > 0; }
  /// Sleeping as a progress thread: see Fabric. begin_sleep() is false when there is something to do.
  bool begin_sleep();
  void end_sleep();
  int epoll_fd() const { return fabric_->epoll_fd(); }
  int nap_ms() const { return watches_device() ? 1 : fabric_->nap_ms(); }
  /// The same in microseconds, where a CUDA stream may be waited for; -1 = any.
  int nap_us() const;
  /// Whether a sleeper is woken by all that is waited for, at once, and no peer waits for what it would do
  /// meanwhile: of a network, not of shared memory alone, where owners help with reads. Under the lock.
  bool rings() const { return network_operations_ > 0 && nap_ms() < 0; }
  /// Looks at deadlines of active operations; cheap, called a few times a second. Under the lock.
  void check_deadlines(int64_t now);

  // transport::Sink, called from turn().
  void* place(int peer, const transport::Envelope& envelope) override;
  void arrived(int peer, const transport::Envelope& envelope, const void* payload) override;
  bool expects(int peer, const transport::Envelope& envelope) const override {
    return find(peer, envelope) != nullptr;
  }
  bool takes_early(int peer) const override { return !keeps_many() || takes_more_early(peer); }
  void lost(int peer, const Status& why) override;

 private:
  Context();

  enum class Seat : uint8_t { on_host, on_device, yields_device };
  Status meet(Seat seat, Deadline deadline);
  bool takes_more_early(int peer) const;
  void say_half_full(const Communicator& comm, int peer, OpNumber number);
  /// Whether the network has something of ended operations that needs further polls to get out.
  bool unsent() { return left_with_network_ && (left_with_network_ = fabric_->unsent()); }
  void hand_on();
  Status open_trace(Deadline deadline);
  Lock lock_slowly();
  static constexpr size_t kBuckets = 256;
  Operation*& bucket(uint32_t comm, OpNumber number) {
    return buckets_[(comm * 0x9e3779b1u + number) % kBuckets];
  }
  Operation* find(int peer, const transport::Envelope& envelope) const;
  /// Whether callers' memory is there that operations use or, having failed, may still be written to.
  static bool owns(const void* context, const void* address);
  void remember_lost(const void* begin, uint64_t bytes);
  /// Fails what uses memory that this thread has found missing.
  void settle_lost_memory();
  std::byte* target(Operation& op, const transport::Envelope& envelope);
  void deliver(Operation& op, int peer, const transport::Envelope& envelope, const void* payload);
  void deliver_stashed(Operation& op);
  bool learn(Operation& op, int peer, const transport::Envelope& envelope, uint32_t number,
             const void* payload);
  int start_awaiting();
  int settle_leftovers();
  bool watches_device() const { return device_operations_ > 0 || !awaiting_.empty() || has_leftovers_; }
  void check_awaiting(int64_t now);
  int take_submissions();
  void ring();
  void ring_sleeper() const;
  void enter(Operation& op);
  bool alone() const;
  bool disturbed() const;
  Status settle_before(Operation& op, bool network);
  inline BriefOutcome carry_out_alone(Operation& op, Status& trouble);
  void go_on_entered(Operation& op, BriefOutcome outcome, Status trouble);
  Status prepare_buffers(Operation& op);
  Status stage(Operation& op, plan::Space space, ScratchPool::Block& block);
  void give_back(const Operation& op, plan::Space space, ScratchPool::Block& block, bool succeeded);
  /// Returns the number of events.
  int advance_one(Operation& op);
  void sleep(Lock& lock, const Operation& op);
  void on_dead(int rank, const Status& why);
  void on_failed(int from, uint32_t comm, const std::string& why);
  bootstrap::OpReport on_question(int from, uint32_t comm, uint32_t number);

  ProgressThread* home_ = nullptr;
  uint64_t job_ = 0;
  bool all_on_devices_ = false, any_yields_device_ = false;
  bool left_with_network_ = false;   // perhaps: since an operation between nodes ended
  std::atomic<bool> in_row_{false};  // see in_row(); set under the lock, cleared by anybody
  bool said_half_full_ = false;      // of the stash
  int64_t early_taken_ns_ = 0;       // when an early message was kept last, of so many as to be too many
  int64_t quiet_since_ns_ = 0, turn_ns_ = 0;  // look_after_row()'s: since when nothing waits; its last turn
  bool has_leftovers_ = false;                // of failed operations, on a device: see leftovers.h

  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<Fabric> fabric_;
  UniqueFd doorbell_;  // wakes whoever sleeps in this context

  BiasedMutex mutex_;
  std::atomic<int> wanting_{0};           // threads that want the lock
  std::atomic<int> waiters_{0};           // threads in wait(); changed under the lock
  bool sleeper_ = false;                  // somebody sleeps on epoll_fd(); under the lock
  const Operation* slept_for_ = nullptr;  // what the sleeper waits for; null: a progress thread, or nobody
  std::atomic<bool> asleep_{false};
  std::condition_variable_any finished_cv_;  // for waiters that are not the sleeper
  int cv_waiters_ = 0;

  std::vector<Operation*> active_;        // in the order in which they were started
  std::vector<Operation*> spare_active_;  // memory for a copy of it
  Operation* hot_ = nullptr;              // the operation started last: most messages are for it
  Operation* buckets_[kBuckets] = {};
  std::vector<std::unique_ptr<Operation>> pool_;
  std::vector<Operation*> free_;
  std::vector<Operation*> awaiting_;  // of GPU memory: not reached by their streams
  uint32_t device_operations_ = 0;    // active ones of GPU memory
  std::map<int, std::unique_ptr<DeviceExecutor>> device_executors_;  // by device
  uint32_t network_operations_ = 0;                                  // active ones that talk between nodes
  // A network without traffic of ours is looked at only so often.
  static constexpr uint32_t kQuietNetworkTurns = 64;
  uint32_t turns_ = 0;

  std::mutex submissions_mutex_;
  std::vector<Operation*> submissions_;
  std::vector<Operation*> spare_submissions_;  // memory for the next ones; under the context's lock
  std::vector<std::shared_ptr<CapturedCalls>> captured_submissions_;
  std::atomic<bool> has_submissions_{false};

  std::unordered_map<uint32_t, Communicator*> communicators_;
  std::unordered_set<uint32_t>
      retired_;  // ids of communicators that are gone: their late messages are dropped
  Stash stash_;

  uint64_t events_ = 0;         // that all turns have seen
  Departures deaths_;           // from the bootstrap
  std::map<int, Status> dead_;  // those of them that have been acted on, by rank of the world
  Departures partings_;         // connections that ended
  std::vector<std::pair<const void*, uint64_t>> lost_buffers_;  // that transports may still touch
  void act_on_deaths(int64_t now);
  static Status loss_of(const Communicator& comm, int world_rank, const Status& why);
  void act_on_partings(int64_t now);

  std::vector<std::pair<uint32_t, Status>> pending_failures_;
  std::mutex news_mutex_;
  std::unordered_map<uint32_t, std::pair<int, std::string>> news_;  // by communicator: from whom, and what
  std::thread inquiry_;
  bool inquiry_running_ = false;                                 // under the lock, as the next
  std::map<uint32_t, std::function<void()>> inquiries_in_turn_;  // by communicator
  std::function<void()> next_inquiry();

  model::Machine machine_;
  std::string machine_doubt_;
  bool wants_measuring_ = false, tunes_ = false;
  ProbeInbox* probe_ = nullptr;
  std::vector<std::vector<std::byte>> kept_;

  ScratchPool scratch_;
  std::unique_ptr<Trace> trace_;
  std::vector<std::byte> bounce_;
  std::vector<const void*> reduce_sources_;
  Visitor visitor_;
  int64_t last_check_ns_ = 0;
};

}  // namespace weft::engine
