// StreamPath: a way to do collectives of a communicator of GPU memory on the caller's stream alone: as one
// kernel (plan_path.h), or as copies and stream memory operations (copy_path.h). The CPU takes no part but
// for words in pinned memory: whether the stream has come to an operation, and has done it.
//
// Which calls a path serves is decided by what all ranks know alike. Calls that it does not serve go step by
// step. An operation on a path has an empty plan. It starts and ends when the stream has done it. Where the
// path has a proxy (proxy.h), the plan has the steps between nodes. The operation then starts when the stream
// has come to it.
//
// Operations of one path are numbered: their *epochs*.
//
// Thread safety: under the context's lock, and inside a cuda::Scope of its device. Methods that get the Lock
// call the driver without it. A call waits there for room in a full stream, and the end of another operation
// may be what makes room.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/cuda/driver.h"
#include "engine/context/context_lock.h"
#include "engine/run/call.h"
#include "engine/run/plan_tables.h"
#include "model/cost.h"
#include "plan/plan.h"

namespace weft::engine {

struct Operation;
class Proxy;
struct ProxyPlaces;

class StreamPath {
 public:
  /// A call as a stream does it.
  struct StreamCall {
    const Call& call;
    double timeout_s;
    bool strict;
    uint32_t signature;
  };
  /// How calls like one request are done.
  struct Served {
    plan::Request request;
    bool scaled = false;                       // of a pre-multiplied sum
    Status why_not;                            // ok: they are served
    std::shared_ptr<const PlanTables> tables;  // of an operation without steps, or with those between nodes
    std::shared_ptr<const ProxyPlaces> proxy_places;  // null: nothing crosses nodes
    uint32_t partners = 0;  // ranks of the node that it cannot end without, a bit each
    virtual ~Served() = default;
  };
  /// What a decision rests on, the same on all ranks.
  struct Prices {
    const model::Machine& machine;
    /// What the call is predicted to take step by step, µs. It costs a simulation.
    std::function<double()> steps_us;
    /// Whether the machine's copies and kernels are known.
    bool known() const { return machine.engines > 0; }
  };

  /// A call's turn to put work into streams. Calls of a path take turns in the order in which they ask. Who
  /// waits for its turn gives up the lock meanwhile.
  class Turn {
   public:
    Turn(StreamPath& path, Lock& lock) WEFT_REQUIRES(context_lock);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    StreamPath& path_;
  };

  virtual ~StreamPath() = default;
  StreamPath(const StreamPath&) = delete;
  StreamPath& operator=(const StreamPath&) = delete;

  /// Null: go step by step.
  std::shared_ptr<const Served> find_or_make(const Call& call, const plan::Request& request,
                                             const Prices& prices);
  /// From now on nothing is served: on all ranks alike.
  void leave_to_steps() { left_ = true; }

  /// Puts the begin of an operation into its stream, and returns its epoch; leave() puts the rest. In between
  /// come the begins of other calls of a group. Each is called in a turn. A handle may name another stream on
  /// another thread, so one thread calls both. It calls leave() even after let_go().
  virtual Result<uint64_t> arrive(Lock& lock, const Operation& op,
                                  const std::shared_ptr<const Served>& served)
      WEFT_REQUIRES(context_lock) = 0;
  virtual Status leave(Lock& lock, uint64_t epoch) WEFT_REQUIRES(context_lock) = 0;
  /// Whether a rank may have to ask the driver for memory, at the first such call.
  virtual bool may_take_memory(const Served&) const { return false; }
  /// Whether the stream has come to it.
  virtual bool has_begun(uint64_t epoch) const = 0;
  /// Whether it has been done. Errors: timeout, where the stream itself has waited too long; remote_error.
  virtual Result<bool> has_ended(uint64_t epoch) = 0;
  /// A clause on what holds up an operation that all ranks have called; "" if nothing is known.
  virtual std::string holds_up(uint64_t epoch) const = 0;
  /// The operation is over for its rank. If the stream has not done it, it waits for nobody any more.
  virtual void let_go(uint64_t epoch) = 0;
  /// Whether the stream has passed by everything that let_go() was told of; makes it do so.
  virtual bool is_drained() { return true; }
  /// What its operations exchange with other nodes; null: all ranks are on one node.
  virtual Proxy* proxy() const { return nullptr; }

  // ---- Graphs

  /// The path of the calls of the communicator's `number`th capture (captures.h), from 1 on, which is the
  /// same on all ranks. Null: captured calls go step by step.
  virtual Result<std::shared_ptr<StreamPath>> for_capture(Lock& lock, uint32_t number)
      WEFT_REQUIRES(context_lock);
  /// Puts a call into a stream that is captured: it is done at every launch of the graph, which calls
  /// nothing of the CPU.
  virtual Status capture(Lock& lock, const StreamCall& call, const std::shared_ptr<const Served>& served)
      WEFT_REQUIRES(context_lock);
  /// The epoch that launches have come to last, and the last that is done.
  virtual uint64_t begun() const { return 0; }
  virtual uint64_t ended() const { return 0; }
  /// Launches leave their calls out from now on, and what is under way waits for nobody.
  virtual void stop() {}
  /// What a graph of this path's calls has to keep: words that its kernels read at every launch.
  virtual std::shared_ptr<void> kept_by_graphs() const { return nullptr; }
  /// The graph may be launched when this has ended. `graph` expires with it.
  virtual void outlive(std::weak_ptr<void> /*graph*/) {}

 protected:
  StreamPath() = default;

 private:
  virtual std::shared_ptr<Served> make(const plan::Request& request, bool scaled,
                                       const Prices& prices) const = 0;

  static constexpr size_t kKnown = 64;  // requests
  std::vector<std::shared_ptr<const Served>> known_;
  bool left_ = false;
  uint32_t turns_ = 0;  // that were asked for
  std::atomic<uint32_t> turns_over_{0};
};

}  // namespace weft::engine
