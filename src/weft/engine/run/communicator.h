// Communicator: a group of ranks that call collectives together: their numbering, the plans they use, the
// state of health, the flight recorder. job/founding.h makes one.
//
// Thread safety: methods marked (lock) need the context's lock; the others take it themselves.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/context/context.h"
#include "engine/failure/comm_health.h"
#include "engine/gpu/comm_device.h"
#include "engine/record/recorder.h"
#include "engine/run/bound_operation.h"
#include "engine/run/membership.h"
#include "engine/run/operation.h"
#include "engine/run/operation_numbers.h"
#include "engine/run/plan_cache.h"
#include "engine/run/registrations.h"
#include "engine/run/run_environment.h"

namespace weft::engine {

/// What a user can set at creation (weftConfig_t); the defaults of settings are the caller's to fill in.
struct CommOptions {
  std::string name;
  std::string host_id;  // pretended node; "" = the real one
  bool blocking = true;
  bool strict = false;
  double timeout_s = 600;
  int device = -1;             // the CUDA device whose memory operations are on; -1: host memory
  bool yields_device = false;  // this rank's device is nothing for Weft: one such rank, and all have none
  uint32_t calls_before = 0;   // the first collective is numbered as the one after so many; for tests
};

class CapturedCalls;
class Captures;

/// What weftCommGetStats tells. Traffic is that of the transports, which all communicators of a job share,
/// since this communicator was created.
struct CommStats {
  uint64_t operations = 0;
  transport::Counters intra, inter;
  int node = 0, nodes = 1;
  std::string intra_transport, inter_transport, last_algorithm;
  float last_predicted_us = 0;  // 0: not known
};

class Communicator {
 public:
  /// Of these ranks of the context's job, on host memory. `shadowed`: whose shadow it is; see captures.h.
  Communicator(std::shared_ptr<Context> context, uint32_t id, std::vector<int> worlds, CommOptions options,
               Communicator* shadowed = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // ---- Calls

  /// Does what is asked and returns when it is done (no stream), or queues it.
  Status run(const Call& call);
  /// The same for a call that waits and is like the last short one (BoundOperation). Its collective is no
  /// transfer; nothing else of it need have been checked. False: nothing has happened.
  bool repeat(const Call& call, Status& outcome);
  /// Waits for everything that was queued; for a CUDA stream that does not come, the communicator's timeout.
  Status finalize();
  /// Fails everything that is unfinished, now. Others are told `reason`, unless that is empty.
  void abort(std::string_view reason = {});
  /// ok, or the first failure.
  Status health();
  CommStats stats();
  /// Keeps a buffer registered with the transports until deregister_buffer().
  Result<void*> register_buffer(void* address, size_t bytes);
  void deregister_buffer(void* registration);
  /// From now on these pins count instead of the setting's; on all ranks alike, between operations.
  void pin(const model::Pins& pins);
  /// How long operations may take that are called from now on, s.
  void set_timeout(double seconds);
  /// The streak in which the next collective will stand.
  CallStreak streak();

  // ---- What it is

  const std::string& name() const { return options_.name; }
  const CommOptions& options() const { return options_; }
  uint32_t id() const { return id_; }
  Context& context() const { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }
  const Membership& members() const { return members_; }
  /// What the steps of its operations use.
  const RunEnvironment& environment() const { return environment_; }
  int rank() const { return members_.rank(); }
  int size() const { return members_.size(); }
  const topology::Layout& layout() const { return members_.layout(); }
  int world_rank(int rank) const { return members_.world_rank(rank); }
  int rank_of_world(int world) const { return members_.rank_of_world(world); }
  /// The CUDA device that operations work on; -1 = host memory.
  int device() const { return options_.device; }
  /// Set when the communicator is made.
  CommDevice& on_device() { return on_device_; }
  const CommDevice& on_device() const { return on_device_; }
  /// What the cost model takes this communicator's machine to be: the job's, or that of its GPU memory.
  const model::Machine& machine() const {
    return on_device_.machine ? *on_device_.machine : context_->machine().machine;
  }
  plan::Request request_for(const Call& call) const;
  PlanCache& plans() { return plans_; }
  /// A communicator of the same ranks for the operations of the `number`th capture here; see captures.h.
  std::unique_ptr<Communicator> make_shadow(uint32_t number);
  bool is_shadow() const { return parent_ != nullptr; }
  /// From now on calls can be captured in CUDA graphs.
  void allow_captures();
  /// Null: they cannot.
  Captures* captures() const { return captures_.get(); }

  // ---- (lock) Operations

  /// The plan of a call that stands next in `streak`.
  Result<PlannedCall> planned(const Call& call, const CallStreak& streak) WEFT_REQUIRES(context_lock);
  /// An operation of the plan, numbered and recorded, with a reference; not started.
  Operation* enroll(const PlannedCall& planned) WEFT_REQUIRES(context_lock);
  /// Starts an operation for the library itself, which keeps its buffers until its end. With a reference.
  Result<Operation*> begin(const Call& call, std::shared_ptr<const void> buffers) WEFT_REQUIRES(context_lock);
  const OperationNumbers& numbers() const WEFT_REQUIRES(context_lock) { return numbers_; }
  /// Everything that was asked for and has not ended, queued or active.
  const std::vector<Operation*>& operations() const WEFT_REQUIRES(context_lock) { return operations_; }
  void operation_begun(Operation& op) WEFT_REQUIRES(context_lock);
  void operation_ended(Operation& op) WEFT_REQUIRES(context_lock);
  /// Whether a collective was called here and is over.
  bool has_ended(OpNumber number) const WEFT_REQUIRES(context_lock);
  /// "operation 812 (AllReduce of 1024 float (sum)) of communicator "world""
  std::string describe(const Operation& op) const;
  const Recorder& recorder() const WEFT_REQUIRES(context_lock) { return recorder_; }
  /// The gate of a peer that is a thread of this process; null of others. The peer has exposed memory here.
  const AccessGate* gate_of(int rank) WEFT_REQUIRES(context_lock);
  void shut_gate() WEFT_REQUIRES(context_lock) { gate_->shut(); }
  /// A number that only this communicator's children have, told apart by `kind`: the same on all ranks that
  /// make them in the same order.
  enum class ChildKind : uint8_t { split, shrunk };
  uint32_t next_child(ChildKind kind) WEFT_REQUIRES(context_lock) {
    return ++children_[static_cast<size_t>(kind)];
  }

  // ---- (lock) Health

  const Status& failure() const WEFT_REQUIRES(context_lock) { return health_.failure(); }
  /// Everything that is unfinished ends with `why`, and so does every later call. The first failure stays.
  void fail(const Status& why, bool tell_others) WEFT_REQUIRES(context_lock);
  /// A shadow's part in its parent's failure.
  void fail_as_shadow() WEFT_REQUIRES(context_lock);
  /// Until when finalize() waits for streams to come to their operations; 0: it has not been called.
  int64_t finalized_by_ns() const WEFT_REQUIRES(context_lock) { return finalized_by_ns_; }

 private:
  inline bool repeat(Lock& lock, const Call& call, Status& outcome) WEFT_REQUIRES(context_lock);
  Status wait_and_keep(Lock& lock, Operation* op) WEFT_REQUIRES(context_lock);
  void keep_or_release(Operation* op) WEFT_REQUIRES(context_lock);
  void let_go_of_bound() WEFT_REQUIRES(context_lock);
  void record(Operation& op) WEFT_REQUIRES(context_lock);
  Operation* unfinished() const WEFT_REQUIRES(context_lock);

  std::shared_ptr<Context> context_;
  const uint32_t id_;
  CommOptions options_;
  const Membership members_;
  const RunEnvironment environment_;
  std::shared_ptr<AccessGate> gate_;
  std::vector<std::shared_ptr<const AccessGate>> gates_;  // of peers, by rank; null: not looked for yet
  PlanCache plans_ WEFT_GUARDED_BY(context_lock);
  CommDevice on_device_;
  std::unique_ptr<Captures> captures_;
  Communicator* const parent_;  // of a shadow; null: it is none
  OperationNumbers numbers_ WEFT_GUARDED_BY(context_lock);
  uint32_t children_[2] WEFT_GUARDED_BY(context_lock) = {};  // made so far, by kind
  std::vector<Operation*> operations_ WEFT_GUARDED_BY(context_lock);
  BoundOperation bound_ WEFT_GUARDED_BY(context_lock);
  Recorder recorder_ WEFT_GUARDED_BY(context_lock);
  Registrations registrations_ WEFT_GUARDED_BY(context_lock);
  struct {
    transport::Counters intra, inter;
  } before_;  // traffic before this communicator was created
  CommHealth health_ WEFT_GUARDED_BY(context_lock);
  int64_t finalized_by_ns_ WEFT_GUARDED_BY(context_lock) = 0;
};

}  // namespace weft::engine
