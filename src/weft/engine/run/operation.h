// Operation: one collective or transfer in flight on one rank: what the caller asked, the plan that does it
// and how far it is. Owned by its context's pool; counted references keep it while somebody waits for it.
//
// Thread safety: everything under the context's lock, except `finished`, which a waiter may read without it,
// and the reference count of an operation on a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/reduce.h"
#include "engine/record/recorder.h"
#include "engine/run/prepared.h"
#include "engine/run/scratch.h"
#include "engine/run/source_reading.h"
#include "plan/uneven.h"
#include "transport/transport.h"

namespace weft::engine {

class Communicator;
class Context;
class DeviceRun;
class AccessGate;
class Stream;

/// Operation numbers. Collectives of a communicator count 1, 2, 3 … in the order of the calls, the same on
/// every rank; 0 comes after 2^31 - 1. A transfer between two ranks is numbered by the pair and its
/// direction: bit 31 set, bit 30 set if it flows from the higher rank to the lower, then a count.
using OpNumber = uint32_t;
inline constexpr OpNumber kTransferBit = 1u << 31;
inline constexpr OpNumber kDownwardBit = 1u << 30;
inline constexpr OpNumber kCollectiveMask = kTransferBit - 1;
inline constexpr OpNumber kTransferMask = kDownwardBit - 1;

/// Whether collective `a` of a communicator comes after `b`, of two that are less than 2^30 apart.
inline bool comes_after(OpNumber a, OpNumber b) {
  return ((a - b - 1) & kCollectiveMask) < kCollectiveMask / 2;
}

/// What a caller asks for, after the API has checked it.
struct Call {
  plan::Collective collective = plan::Collective::all_reduce;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  device::DataType type = device::DataType::float32;
  device::ReduceOp op = device::ReduceOp::sum;
  bool premultiply = false;                    // sum of inputs × scalar
  bool scalar_is_address = false;              // of where it is to be read when the CUDA stream has come
  std::byte scalar[8] = {};                    // one element
  int root = 0;                                // or peer
  double timeout_s = 0;                        // 0: the communicator's
  Stream* stream = nullptr;                    // null: the caller waits
  std::shared_ptr<const plan::Uneven> uneven;  // of a collective whose blocks have sizes of their own
  bool on_device = false;                      // GPU memory, in order after `cuda_stream`
  bool splits = false;                         // the AllGather of a split, which no other matches
  void* cuda_stream = nullptr;
};

/// A call with the plan that does it.
struct PlannedCall {
  Call call;
  std::shared_ptr<const Prepared> prepared;
};

/// A peer's exposed memory as this operation has learned it.
struct PeerBuffer {
  transport::RemoteBuffer buffer;
  std::byte* mapped = nullptr;  // through which it can be read and written from here, or null
  bool on_device = false;       // `mapped` is GPU memory
  const AccessGate* gate =
      nullptr;  // of a peer of this process: `mapped` may be touched inside an AccessGuard only

  /// Whether a put there of so many bytes goes one-sided, or as a message. A plan waits for the destinations
  /// of what no message holds; others are learned by then or are not.
  bool takes_put(uint64_t bytes, const transport::Transport& transport) const {
    return bytes > transport.eager_bytes() || mapped != nullptr ||
           (bytes > transport.brief_put_bytes() && buffer.bytes > 0);
  }
};

struct LaneState {
  uint32_t next = 0;      // position in plan.lane_steps
  uint64_t progress = 0;  // bytes done of a copy or reduce that is under way
  uint64_t since = 0;     // ticks at which the step came up; only while tracing
};

struct Operation {
  Operation();
  ~Operation();

  // What was asked.
  Call call;
  Communicator* comm = nullptr;
  Context* context = nullptr;
  OpNumber number = 0;
  int32_t transfer_peer = -1;  // comm rank, for send and recv
  uint32_t signature = 0;
  std::shared_ptr<const Prepared> prepared;  // kept in the pool: the next call is often the same
  device::Reduction reduction;
  /// … as a step of its plan does it.
  device::Reduction reduction_of(const plan::Step& step) const {
    device::Reduction of_step = reduction;
    of_step.weights = prepared->plan.contributions_of(step).data();
    if (!step.final) of_step.divisor = 1;
    return of_step;
  }
  Record* record = nullptr;  // its place in the ring
  /// That, or null once it has gone to a later operation.
  Record* own_record() const { return record->of == this ? record : nullptr; }
  Record repeated;  // of one that stands for the next call like it: what its record will be, but for the call
  std::shared_ptr<const void> buffers;  // of a call that the library makes for itself; null: the caller's

  // Where it works: base addresses by plan::Space.
  std::byte* base[3] = {};
  uint64_t base_bytes[3] = {};
  /// What rank `peer` calls 0 in a space, and how long that is: of an uneven collective a block of it.
  plan::SharedBlock shared_with(int peer, plan::Space space) const {
    const plan::Request& request = prepared->plan.request;
    const plan::SharedBlock all{0, base_bytes[static_cast<int>(space)]};
    if (!request.uneven || space == plan::Space::scratch) [[likely]]
      return all;
    return plan::shared_block(request, space, peer);
  }
  /// Whether a message's payload has room where its envelope says.
  bool fits(const transport::Envelope& envelope, int from) const {
    if (envelope.space > 2) return false;
    const uint64_t room = shared_with(from, static_cast<plan::Space>(envelope.space)).bytes;
    return envelope.offset <= room && envelope.bytes <= room - envelope.offset;
  }
  /// Of the messages to and from a peer.
  uint32_t signature_with(int peer) const {
    const std::vector<uint32_t>& pairs = prepared->pair_signatures;
    return pairs.empty() ? signature : signature ^ pairs[static_cast<size_t>(peer)];
  }
  ScratchPool::Block scratch;
  ScratchPool::Block staged_input,
      staged_output;  // window copies of buffers that peers could not reach otherwise
  alignas(64) std::byte inline_scratch[kInlineScratch];

  std::unique_ptr<DeviceRun> device;  // null: host memory

  // How far it is.
  const Prepared* laid_out_for = nullptr;  // whose lengths the vectors have
  std::vector<uint8_t> arrived;            // by notification number
  std::vector<PeerBuffer> learned;         // by handle
  std::vector<LaneState> lanes;
  std::vector<uint8_t> step_done;                  // only if the plan has dependencies
  std::vector<transport::Completion> completions;  // by put
  uint32_t lanes_left = 0;
  uint32_t puts_started = 0;
  uint32_t puts_open = 0;  // started, `done` not seen yet
  bool may_move = true;    // false: every lane waits for a message
  struct Exposure {
    transport::Transport* transport;
    plan::Space space;
    transport::RemoteBuffer buffer;
    plan::SharedBlock block = {};  // of an uneven collective: what is exposed of the space
  };
  std::vector<Exposure> exposures;
  std::vector<std::shared_ptr<const void>> mappings;  // of `learned`
  SourceReadings readings;

  // Its end.
  bool started = false;
  Status status;
  std::atomic<bool> finished{false};
  std::atomic<int> references{0};
  void retain() {
    if (call.stream) references.fetch_add(1, std::memory_order_relaxed);
    else references.store(references.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// True if that was the last reference.
  bool drop() {
    if (call.stream) return references.fetch_sub(1, std::memory_order_acq_rel) == 1;
    const int left = references.load(std::memory_order_relaxed) - 1;
    references.store(left, std::memory_order_relaxed);
    return left == 0;
  }
  /// As new, for the next call; what belongs to its plan stays.
  void renew() {
    started = false;
    status = Status();
    finished.store(false, std::memory_order_relaxed);
    references.store(1, std::memory_order_relaxed);
    deadline_ns = next_check_ns = unreachable_ns = 0;
    verdict_pending = false;
    mismatched = -1;
  }
  double timeout_s = 0;        // from when its rank first had to wait for it
  int64_t deadline_ns = 0;     // 0 until the first look at the clock
  int64_t next_check_ns = 0;   // when to ask peers what holds them up
  int64_t unreachable_ns = 0;  // since when a peer or its memory cannot be reached; 0: nothing such is known
  Status unreachable;          // … and why, as long as no better reason is heard
  void set_unreachable(Status why, int64_t now_ns) {
    unreachable = std::move(why);
    unreachable_ns = now_ns;
  }
  bool verdict_pending = false;
  int32_t mismatched = -1;  // a rank whose message did not fit: the verdict is that the calls differ

  // Chains of the owners.
  Operation* next_in_bucket = nullptr;
  uint32_t active_index = 0;
  uint32_t comm_index = 0;  // in Communicator::operations()
};

/// How the flight recorder puts it down when it is called.
Record record_of(const Operation& op);

}  // namespace weft::engine
