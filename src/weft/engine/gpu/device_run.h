// DeviceRun: an operation's side of GPU memory: where its buffers are, what of it is under way on the
// device, and how it meets the caller's CUDA stream. The plan is the same as on host memory;
// device_steps.cc does its steps.
//
// The buffers of a plan's spaces lie in device memory or in pinned host memory:
//
//   input, output   The caller's own. Where peers of the node have to reach them and CUDA cannot share
//                   them, a pinned copy, made before the plan starts, or given back when it has ended.
//   scratch         Device memory, or pinned host memory where the CPU reduces.
//
// Where the communicator has GPUDirect, the network reads and writes spaces in device memory themselves.
// Else, and for a space that it cannot register, it knows pinned host memory only: a *landing* of a space
// in device memory is where puts arrive. From there each goes to the device by itself, and only then counts
// as arrived.
//
// Thread safety: none; under the context's lock. Methods make the device current themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "engine/context/context_lock.h"
#include "engine/gpu/device_executor.h"
#include "engine/gpu/side_copies.h"
#include "engine/gpu/stream_path.h"
#include "plan/plan.h"
#include "transport/transport.h"

namespace weft::engine {

class CapturedCalls;
struct Operation;

class DeviceRun {
 public:
  DeviceRun(DeviceExecutor& executor, Operation& op);
  /// The device must be done with it: see end().
  ~DeviceRun();
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  // ---- The caller's stream

  /// Makes the stream say when it comes to this operation. Then, for all operations of a group, wait_in():
  /// what follows in the stream waits for the operation's end. CUDA's calls wait where a stream is full, or
  /// while another thread frees memory. What ends that may be the end of another operation. So they are made
  /// without the lock, and the operation may fail meanwhile.
  Status arrive_in(Lock& lock, cuda::StreamHandle* stream) WEFT_REQUIRES(context_lock);
  Status wait_in(Lock& lock, cuda::StreamHandle* stream) WEFT_REQUIRES(context_lock);
  /// Whether the stream has come to it.
  Result<bool> stream_is_here();
  /// Which stream that is: number_of_stream().
  uint64_t stream_number() const { return stream_number_; }
  /// For an operation of calls that a graph has come to: they have to do with the stream instead.
  void follow(std::shared_ptr<CapturedCalls> calls) { hold_.calls = std::move(calls); }
  /// For an operation that its stream does alone: it is here when the stream has done it, and its plan is
  /// empty.
  void follow(std::shared_ptr<StreamPath> path, std::shared_ptr<const StreamPath::Served> served);
  /// Where an operation is that its stream does alone.
  struct OnPath {
    std::shared_ptr<StreamPath> path;  // null: it goes step by step, or has ended
    std::shared_ptr<const StreamPath::Served> served;
    uint64_t epoch = 0;  // 0: not there yet
    bool ended = false;  // the stream has done it
    std::shared_ptr<StreamPath>
        to_leave;  // arrive() has put its begin into the stream, and leave() is to come

    Status arrive(Lock& lock, const Operation& op) WEFT_REQUIRES(context_lock);
    Status leave(Lock& lock) WEFT_REQUIRES(context_lock);
    bool has_begun() const { return path->has_begun(epoch); }
    std::string holds_up() const { return path->holds_up(epoch); }
    /// Whether its plan has the steps between nodes of what the stream does (proxy.h).
    bool has_proxy() const { return served && served->proxy_places; }
    /// Where the payload of a message of rank `from` goes then; null: it does not fit.
    std::byte* proxy_slot(int from, const transport::Envelope& envelope) const;
  };
  OnPath& on_path() { return on_path_; }
  /// Lets the stream go on, unless a pending release does that later.
  void release_stream();

  // ---- Buffers

  /// Decides where the buffers are, and starts what has to be done before the plan.
  Status prepare();
  bool on_device(plan::Space space) const { return state(space).on_device; }
  /// Host memory where a peer's put into `space` may arrive; null if there is none.
  std::byte* landing(plan::Space space) const;
  /// The same, made if need be: for a space that is exposed to the network.
  Result<std::byte*> make_landing(plan::Space space);
  /// The network's key to a space in device memory, by which it is read and written without a copy; null
  /// where it has to be staged. Decided at an operation's first question for the space; the key lasts until
  /// its end.
  const transport::RemoteBuffer* expose_directly(transport::Transport& network, plan::Space space);
  /// For a peer of the node.
  Result<cuda::SharedMemory> share(plan::Space space);
  /// Learns where a peer's memory is for this device, for handle `handle`; it stays mapped until the
  /// operation ends. True if it can be used now; else notification `number` arrives by poll(), when an
  /// operation that still uses older memory of the peer's has ended.
  Result<bool> learn(int32_t handle, uint32_t number, const cuda::SharedMemory& memory);
  /// Files what has arrived for `envelope`'s place: at `payload`, at landing(), or there already. True if it
  /// is there now; else notification `number` arrives by poll().
  Result<bool> file(uint32_t number, const transport::Envelope& envelope, const void* payload);

  // ---- Progress

  /// Looks at what is under way outside the plan's steps. True if anything moved.
  Result<bool> poll();
  /// Whether the plan may start.
  bool prepared() const { return before_ == Before::nothing; }
  /// The plan's steps are done: starts what has to follow. finished() says when that is done.
  Status conclude();
  bool finished() const { return after_ == After::done; }
  /// The likely reason of a failure of the driver: a buffer that is gone, else what the driver says.
  Status explain(const Status& failure) const;
  /// Gives everything back. `succeeded`: all work is known to have ended, and peers are done with what was
  /// exposed to them; else what the device is not done with becomes a pending release, and so does the
  /// stream.
  void end(bool succeeded);

  /// What a lane's copy or reduction has under way.
  struct LaneWork {
    cuda::Ticket ticket;
    int phase = 0;
    std::vector<cuda::Block> host, device;
  };
  LaneWork& lane(uint32_t number) { return lanes_[number]; }
  /// Gives back a step's blocks.
  void clear(LaneWork& work);
  /// Keeps a block until the operation ends: a put of it is under way.
  void keep(cuda::Block host_block) { kept_.host.push_back(host_block); }
  SideCopies& side_copies() { return side_copies_; }
  DeviceExecutor& executor() { return executor_; }

 private:
  enum class Before : uint8_t { nothing, scalar, copies, scaling };
  enum class After : uint8_t { plan, copies, done };
  enum class Direct : uint8_t { undecided, yes, no };
  /// Where a space is.
  struct SpaceState {
    bool on_device = false;
    Direct direct = Direct::undecided;
    cuda::Block staged, landing;               // host
    std::optional<cuda::Place> place;          // of the caller's buffer
    std::optional<cuda::SharedMemory> shared;  // what peers of the node are told
  };
  SpaceState& state(plan::Space space) { return spaces_[static_cast<size_t>(space)]; }
  const SpaceState& state(plan::Space space) const { return spaces_[static_cast<size_t>(space)]; }

  Status fetch_scalar();
  Status place_input();
  Status mark_before();
  Status place_output();
  Status place_scratch();
  Result<bool> must_be_staged(plan::Space space, const void* address);
  Result<cuda::Place> place_of(plan::Space space, const void* address);
  Result<bool> learn_postponed();
  UsedMemory take_memory(bool succeeded);

  DeviceExecutor& executor_;
  Operation& op_;
  StreamHold hold_;
  OnPath on_path_;
  uint64_t stream_number_ = 0;
  cuda::EventHandle* reached_ = nullptr;  // without stream memory operations
  bool begun_ = false;                    // something may be queued

  std::array<SpaceState, 3> spaces_;
  cuda::Block device_input_, device_scratch_;
  cuda::Block scalar_;  // host
  bool staged_output_ = false;
  Before before_ = Before::nothing;
  After after_ = After::plan;
  cuda::Ticket ticket_;  // of before_ or after_
  std::vector<LaneWork> lanes_;
  SideCopies side_copies_;
  UsedMemory kept_;  // for puts that are under way, and memory of peers
  struct Postponed {
    int32_t handle;
    uint32_t number;
    cuda::SharedMemory memory;
    std::weak_ptr<void> behind;
  };
  std::vector<Postponed> postponed_;
};

}  // namespace weft::engine
