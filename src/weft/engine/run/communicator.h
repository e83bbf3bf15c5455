// Communicator: a group of ranks that call collectives together: their numbering, the plans they have used,
// the state of health, the flight recorder.
//
// Thread safety: methods marked (lock) need the context's lock; the others take it themselves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/cuda/capture.h"
#include "engine/run/call_row.h"
#include "engine/context/context.h"
#include "engine/gpu/device_executor.h"
#include "engine/gpu/first_use.h"
#include "engine/run/operation.h"
#include "engine/record/recorder.h"
#include "model/tuner.h"

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

/// A collective as the API was asked for it: nothing of it has been checked.
struct Asked {
  plan::Collective collective;
  const void* send;
  void* recv;
  uint64_t count;
  int type, op, root;
};

class CapturedCalls;
class Captures;
class Communicator;
using GroupCall = std::pair<std::shared_ptr<Communicator>, Call>;

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
  /// The communicator of all ranks of a new job; a collective.
  static Result<std::shared_ptr<Communicator>> create(const bootstrap::UniqueId& id, int rank, int ranks,
                                                      CommOptions options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// What is left of making a communicator when its place in the order of the calls is taken: it is called
  /// once, on any thread, and the parent stays until it has returned.
  using Making = std::function<Result<std::shared_ptr<Communicator>>()>;
  /// A communicator of those that pass the same color, ordered by (key, rank); null for a negative color. A
  /// collective, whose place in the order of the calls is that of this call.
  Result<Making> begin_split(int color, int key, CommOptions options);
  /// This rank's part in a split of which it wants nothing; does not wait.
  Status stay_out_of_split();
  /// A communicator without `excluded`; only the others call it, and nothing is sent, so that it works after
  /// a failure. Shrinks of a communicator are told apart by the order of these calls.
  Result<Making> begin_shrink(const std::vector<int>& excluded, bool abort_first, CommOptions options);
  /// Both halves.
  Result<std::shared_ptr<Communicator>> split(int color, int key, CommOptions options);
  Result<std::shared_ptr<Communicator>> shrink(const std::vector<int>& excluded, bool abort_first,
                                               CommOptions options);

  /// Does what is asked and returns when it is done (no stream), or queues it.
  Status run(const Call& call);
  /// The same for a call that waits, if it differs from the last brief one that was kept (Prepared::brief) in
  /// nothing but its buffers, and would still be chosen so (CallRow): then only the buffers have to be
  /// checked, and are. False: nothing has happened.
  bool repeat(const Asked& asked, Status& outcome);
  /// The CUDA device that operations work on; -1 = host memory.
  int device() const { return options_.device; }
  /// Whether a call's stream and buffers, of so many bytes, will do for that device.
  Status check_device_call(const Call& call, uint64_t input_bytes, uint64_t output_bytes) const;
  /// Puts the scalar of a call's operator into the call: pageable memory's value, or where it is to be read
  /// when the stream has come.
  Status note_scalar(const void* scalar, Call& call) const;
  /// Starts all at once and waits for those without a stream. Calls may be of different communicators. If one
  /// of them cannot be done, none is started.
  static Status run_group(std::vector<GroupCall>& calls);

  /// How long the cost model expects a call to take that would come next in `row`.
  Result<double> predict_us(const Call& call, const CallRow& row);
  /// The row in which the next collective will stand.
  CallRow row();
  /// Whether an algorithm can do a call here.
  bool can(const Call& call, std::string_view algorithm) const;
  /// What the tuner would choose for a call on another machine than the communicator's.
  Result<model::Choice> choose_on(const model::Machine& machine, const Call& call, const model::Pins& pins);
  /// How long a call takes there in a long row by an algorithm that can do it; 0 if nobody can say.
  double row_us_on(const model::Machine& machine, const Call& call, std::string_view algorithm);
  /// From now on these pins count instead of the setting's; on all ranks alike, between operations.
  void pin(const model::Pins& pins);
  CommStats stats();
  /// Keeps a buffer registered with the transports until deregister_buffer().
  Result<void*> register_buffer(void* address, size_t bytes);
  void deregister_buffer(void* registration);

  /// Waits for everything that was queued; for a CUDA stream that does not come, the communicator's timeout.
  Status finalize();
  /// Fails everything that is unfinished, now. Others are told `reason`, unless that is empty.
  void abort(std::string_view reason = {});
  /// ok, or the first failure.
  Status health();

  const std::string& name() const { return options_.name; }
  const CommOptions& options() const { return options_; }
  uint32_t id() const { return id_; }
  /// For captures.h: a communicator of the same ranks for the operations of the `number`th capture here.
  std::unique_ptr<Communicator> make_lane(uint32_t number);
  bool is_lane() const { return parent_ != nullptr; }
  Captures* captures() { return captures_.get(); }
  const Captures* captures() const { return captures_.get(); }
  /// The context's, for its device; null: host memory.
  DeviceExecutor* device_executor() const { return device_executor_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_of_.size()); }
  const topology::Layout& layout() const { return layout_; }
  /// What plans are made with, but for slices of another length where the tuner takes them.
  const plan::Limits& limits() const { return limits_; }
  Context& context() { return *context_; }

  // (lock), for the context and the interpreter.
  transport::Transport* route(int rank) const { return routes_[rank]; }
  int world_rank(int rank) const { return world_of_[rank]; }
  /// -1 if a rank of the job is not in this communicator.
  int rank_of_world(int world) const { return rank_of_world_[world]; }
  /// The door of a peer that is a thread of this process; null of others. The peer has exposed memory here.
  const Door* door_of(int rank);
  void shut_door() { door_->shut(); }
  const Status& failure() const { return failure_; }
  /// The network's way to GPU memory, where every rank has one; null: GPU memory is staged between nodes.
  transport::GpuDirect* gpu_direct() const { return gpu_direct_; }
  /// Whether ranks of a node reach each other's GPU memory; else it is staged. The same on all ranks.
  bool shares_gpu_memory() const { return shares_gpu_memory_; }
  /// What the cost model takes this communicator's machine to be: the context's, or that of its GPU memory.
  const model::Machine& machine() const { return gpu_machine_ ? *gpu_machine_ : context_->machine(); }
  /// Everything that is unfinished ends with `why`, and so does every later call. The first failure stays.
  void fail(const Status& why, bool tell_others);
  /// The part of that which a lane's communicator has done to it.
  void fail_as_lane(const Status& why);
  /// Until when finalize() waits for streams to come to their operations; 0: it has not been called.
  int64_t finalized_by_ns() const { return finalized_by_ns_; }
  /// Starts an operation that a graph has come to.
  void run_captured(const Call& call, const std::shared_ptr<const Prepared>& prepared,
                    std::shared_ptr<CapturedCalls> calls);
  /// "operation 812 (AllReduce of 1024 float (sum)) of communicator "world""
  std::string describe(const Operation& op) const;
  /// Number of the last collective that was called here; before the first one, 0.
  OpNumber last_called() const { return last_collective_; }
  /// Whether a collective was called here and is over.
  bool has_ended(OpNumber number) const;
  Recorder& recorder() { return recorder_; }
  const Recorder& recorder() const { return recorder_; }
  /// Everything that was asked for and has not ended, queued or active.
  const std::vector<Operation*>& operations() const { return operations_; }
  void operation_begun(Operation& op);
  void operation_ended(Operation& op);

 private:
  Communicator(std::shared_ptr<Context> context, uint32_t id, std::vector<int> world_of, CommOptions options,
               Communicator* lane_of = nullptr);
  plan::Request request_for(const Call& call) const;
  struct Planned {
    Call call;
    std::shared_ptr<const Prepared> prepared;
  };
  Result<Planned> planned(const Call& call, const CallRow& row);
  Result<Planned> planned_self_copy(const Call& send, const Call& recv);
  static Result<Planned> planned_in_group(const std::vector<GroupCall>& calls, std::vector<bool>& taken,
                                          size_t i, const CallRow& row);
  struct GroupPart {
    Communicator* comm;
    Planned plan;
    cuda::Capture capture;
  };
  static Result<std::vector<GroupPart>> planned_group(const std::vector<GroupCall>& calls);
  enum class Siblings : uint8_t { on_devices, mixed };
  /// What a rank says in a split; the device is kYielded where that is nothing for Weft.
  struct Choice {
    int32_t color, key, device;
  };
  static constexpr int32_t kYielded = -2;
  Result<Operation*> gather_choices(std::shared_ptr<std::vector<Choice>> choices);
  Result<std::shared_ptr<Communicator>> make_child(uint32_t id, std::vector<int> world_of,
                                                   CommOptions options, Siblings siblings,
                                                   const Communicator* shrunk_from);
  Result<cuda::Capture> capture_of(const Call& call) const;
  Status run_on_device(const Call& call);
  Operation* unfinished() const;
  Result<Operation*> make(const Call& call);
  inline bool stands_for(const Asked& asked) const;
  bool repeat(Lock& lock, const Asked& asked, Status& outcome);
  Status wait_and_keep(Lock& lock, Operation* op);
  OpNumber next_number() { return last_collective_ = (last_collective_ + 1) & kCollectiveMask; }
  void keep_or_release(Operation* op);
  /// `meeting_s`: how long ranks wait for each other in it.
  Status open_device(Siblings siblings, double meeting_s, const Communicator* shrunk_from = nullptr);
  Status stay_away(const Status& why);
  uint32_t meeting_id() const;
  Status settle_sharing(double meeting_s);
  Status reach_neighbours(const std::vector<cuda::SharedMemory>& offers);
  Status settle_gpu_direct();
  Status arrive_on_device(Operation& op);
  Status leave_on_device(Operation& op);
  bool is_first_use(const Call& call);
  static Deadline first_use_patience();
  void stay_with(Lock& lock, const Operation& op, const Deadline& patience);
  void record(Operation& op);
  Operation* enroll(const Call& call, const std::shared_ptr<const Prepared>& prepared);
  /// Valid until the next call.
  Result<const std::shared_ptr<const Prepared>*> plan_for(const plan::Request& request, int row);

  std::shared_ptr<Context> context_;
  uint32_t id_;
  CommOptions options_;
  int rank_ = 0;
  std::vector<int> world_of_;
  std::vector<int> rank_of_world_;
  topology::Layout layout_;
  std::vector<transport::Transport*> routes_;
  std::shared_ptr<Door> door_;
  std::vector<std::shared_ptr<const Door>> doors_;  // of peers, by rank; null: not looked for yet
  plan::Limits limits_;
  model::Pins pins_;

  DeviceExecutor* device_executor_ = nullptr;  // the context's; null: host memory
  transport::GpuDirect* gpu_direct_ = nullptr;
  bool shares_gpu_memory_ = false;
  std::shared_ptr<const model::Machine> gpu_machine_;  // null: the context's
  FirstUse first_use_;
  std::unique_ptr<Captures> captures_;  // null: host memory, or a lane
  Communicator* parent_ = nullptr;      // of a lane
  Status failure_;
  int64_t finalized_by_ns_ = 0;
  OpNumber last_collective_;
  CallRow row_;
  std::vector<uint32_t> sent_, received_;  // transfers so far, by peer
  uint32_t splits_ = 0, shrinks_ = 0;      // begun
  std::vector<Operation*> operations_;
  Recorder recorder_;
  transport::Counters intra_before_, inter_before_;  // traffic before this communicator was created
  struct Registration {
    std::vector<std::pair<transport::Transport*, transport::RemoteBuffer>> buffers;
  };
  std::vector<std::unique_ptr<Registration>> registrations_;

  /// What a plan was made for: a request, in a row of so many (CallRow::expected()).
  struct Wanted {
    plan::Request request;
    int row = 1;
    bool operator==(const Wanted&) const = default;
  };
  struct WantedHash {
    size_t operator()(const Wanted& wanted) const {
      const plan::Request& r = wanted.request;
      uint64_t h = r.count * 0x9e3779b97f4a7c15ull;
      h ^= (uint64_t{static_cast<uint8_t>(r.collective)} << 56) ^ (uint64_t{r.element_bytes} << 40) ^
           (uint64_t{r.strict} << 39) ^ (uint64_t{r.disjoint} << 38) ^
           (uint64_t{static_cast<uint32_t>(r.root)} * 0xff51afd7ed558ccdull) ^
           (uint64_t{static_cast<uint32_t>(wanted.row)} << 17);
      return static_cast<size_t>(h ^ (h >> 29));
    }
  };
  std::unordered_map<Wanted, std::shared_ptr<const Prepared>, WantedHash> plans_;
  std::unordered_map<Wanted, model::Estimates, WantedHash> estimates_;  // with a root, for rows of any length
  size_t planned_steps_ = 0;
  Wanted last_wanted_;
  std::shared_ptr<const Prepared> last_plan_;
  Operation* standing_ = nullptr;  // the last brief collective that was kept: a call like it is repeat()ed
};

}  // namespace weft::engine
