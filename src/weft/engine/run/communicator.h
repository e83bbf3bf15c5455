// Communicator: a group of ranks that call collectives together. job/founding.h makes one. It runs calls, and
// has a part for each thing that calls need:
//
//   Membership        which ranks it has, on which nodes, and how each is reached
//   PlanCache         the plans of calls
//   CommOperations    numbers of operations, and those that have not ended
//   BoundOperation    the last short call, kept for the next one like it
//   CommGates         who may touch the memory of ranks of this process
//   Buffers           buffers that the caller keeps registered (Registrations), or has opened (Windows)
//   CommHealth        the first failure;  Recorder  the flight recorder
//   CommDevice        its GPU;  Captures  calls in CUDA graphs
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
#include "engine/run/access_gate.h"
#include "engine/run/bound_operation.h"
#include "engine/run/comm_operations.h"
#include "engine/run/membership.h"
#include "engine/run/operation.h"
#include "engine/run/plan_cache.h"
#include "engine/run/registrations.h"
#include "engine/run/run_environment.h"
#include "engine/run/windows.h"

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
  /// Of these ranks of the context's job, on host memory. `shadowed`: the communicator that it is a shadow of
  /// (captures.h).
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
  /// From now on these pins count instead of the setting's; on all ranks alike, between operations.
  void pin(const model::Pins& pins);
  /// How long operations may take that are called from now on, s.
  void set_timeout(double seconds);

  // ---- What it is

  const std::string& name() const { return options_.name; }
  const CommOptions& options() const { return options_; }
  uint32_t id() const { return id_; }
  Context& context() const { return *context_; }
  const Membership& members() const { return members_; }
  /// What the steps of its operations use.
  const RunEnvironment& environment() const { return environment_; }
  int rank() const { return members_.rank(); }
  int size() const { return members_.size(); }
  /// Set when the communicator is made.
  CommDevice& on_device() { return on_device_; }
  const CommDevice& on_device() const { return on_device_; }
  /// What the cost model takes this communicator's machine to be: the job's, or that of its GPU memory.
  const model::Machine& machine() const {
    return on_device_.machine ? *on_device_.machine : context_->machine().machine;
  }
  PlanCache& plans() { return plans_; }
  bool is_shadow() const { return parent_ != nullptr; }
  /// From now on calls can be captured in CUDA graphs.
  void allow_captures();
  /// Null: they cannot.
  Captures* captures() const { return captures_.get(); }

  // ---- (lock) Operations

  /// The plan of a call that stands next in `streak`. Valid until the next call.
  Result<const std::shared_ptr<const PlanTables>*> tables_for(const Call& call, const CallStreak& streak)
      WEFT_REQUIRES(context_lock);
  /// An operation of the plan, numbered and recorded, with a reference; not started.
  Operation* enroll(const Call& call, const std::shared_ptr<const PlanTables>& tables)
      WEFT_REQUIRES(context_lock);
  /// Starts an operation for the library itself, which keeps its buffers until its end. With a reference.
  Result<Operation*> begin(const Call& call, std::shared_ptr<const void> buffers) WEFT_REQUIRES(context_lock);
  CommOperations& operations() WEFT_REQUIRES(context_lock) { return operations_; }
  const CommOperations& operations() const WEFT_REQUIRES(context_lock) { return operations_; }
  const Recorder& recorder() const WEFT_REQUIRES(context_lock) { return recorder_; }
  CommGates& gates() WEFT_REQUIRES(context_lock) { return gates_; }
  /// Buffers that the caller keeps registered, or has opened to other ranks.
  struct Buffers {
    Registrations registrations;
    Windows windows;
  };
  Buffers& buffers() WEFT_REQUIRES(context_lock) { return buffers_; }

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
  bool repeat_on_stream(const Call& call) WEFT_REQUIRES(context_lock);
  Status wait_and_keep(Lock& lock, Operation* op) WEFT_REQUIRES(context_lock);

  std::shared_ptr<Context> context_;
  const uint32_t id_;
  CommOptions options_;
  const Membership members_;
  const RunEnvironment environment_;
  CommGates gates_ WEFT_GUARDED_BY(context_lock);
  PlanCache plans_ WEFT_GUARDED_BY(context_lock);
  CommDevice on_device_;
  std::unique_ptr<Captures> captures_;
  Communicator* const parent_;  // of a shadow; null: it is none
  CommOperations operations_ WEFT_GUARDED_BY(context_lock);
  BoundOperation bound_ WEFT_GUARDED_BY(context_lock);
  Recorder recorder_ WEFT_GUARDED_BY(context_lock);
  Buffers buffers_ WEFT_GUARDED_BY(context_lock);
  struct {
    transport::Counters intra, inter;
  } before_;  // traffic before this communicator was created
  CommHealth health_ WEFT_GUARDED_BY(context_lock);
  int64_t finalized_by_ns_ WEFT_GUARDED_BY(context_lock) = 0;
};

}  // namespace weft::engine
