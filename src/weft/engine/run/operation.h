// Operation: one collective or transfer in flight on one rank: what the caller asked, the plan that does it,
// and a part for each side of doing it. The pool of its context owns it; counted references keep it while
// somebody waits for it.
//
// Thread safety: everything under the context's lock, but for what OperationEnd names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/reduce.h"
#include "engine/failure/operation_health.h"
#include "engine/record/recorder.h"
#include "engine/run/call.h"
#include "engine/run/exposures.h"
#include "engine/run/operation_end.h"
#include "engine/run/operation_memory.h"
#include "engine/run/plan_tables.h"
#include "engine/run/step_progress.h"
#include "plan/uneven.h"

namespace weft::engine {

class Communicator;
class Context;
class DeviceRun;

/// Operation numbers. Collectives of a communicator count 1, 2, 3 … in the order of the calls, the same on
/// every rank; 0 comes after 2^31 - 1. A transfer between two ranks is numbered by the pair and its
/// direction: bit 31 set, bit 30 set if it flows from the higher rank to the lower, then a count. Puts have
/// bit 29 set, and a count of their own. A put to oneself and a wait for signals are numbered as puts to
/// oneself, which no message names.
using OpNumber = uint32_t;
inline constexpr OpNumber kTransferBit = 1u << 31;
inline constexpr OpNumber kDownwardBit = 1u << 30;
inline constexpr OpNumber kCollectiveMask = kTransferBit - 1;
inline constexpr OpNumber kPutBit = 1u << 29;
inline constexpr OpNumber kTransferMask = kPutBit - 1;

/// Whether collective `a` of a communicator comes after `b`, of two that are less than 2^30 apart.
inline bool comes_after(OpNumber a, OpNumber b) {
  return ((a - b - 1) & kCollectiveMask) < kCollectiveMask / 2;
}

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
  std::shared_ptr<const PlanTables> tables;  // kept in the pool: the next call is often the same
  device::Reduction reduction;
  Record* record = nullptr;             // its place in the ring
  std::shared_ptr<const void> buffers;  // of a call that the library makes for itself; null: the caller's

  // How it is done.
  OperationMemory memory;
  StepProgress progress;
  Exposures exposures;
  std::unique_ptr<DeviceRun> device;  // what GPU memory takes besides; null: host memory
  OperationHealth health;
  OperationEnd end;
  bool started = false;  // the table of operations has entered it

  // Chains of the owners.
  Operation* next_in_bucket = nullptr;
  uint32_t active_index = 0;
  uint32_t comm_index = 0;  // in CommOperations::unfinished()

  /// The reduction as a step of the plan does it.
  device::Reduction reduction_of(const plan::Step& step) const {
    device::Reduction of_step = reduction;
    of_step.weights = tables->plan.contributions_of(step).data();
    if (!step.final) of_step.divisor = 1;
    return of_step;
  }
  /// What rank `peer` calls 0 in a space, and how long that is: of an uneven collective a block of it.
  plan::SharedBlock shared_with(int peer, plan::Space space) const {
    const plan::Request& request = tables->plan.request;
    if (!request.uneven || space == plan::Space::scratch) [[likely]]
      return {0, memory.bytes[static_cast<int>(space)]};
    return plan::shared_block(request, space, peer);
  }
  /// Whether the payload of a message from `from` has room where its envelope says.
  bool fits(const transport::Envelope& envelope, int from) const {
    return envelope.space <= 2 &&
           envelope.fits_in(shared_with(from, static_cast<plan::Space>(envelope.space)).bytes);
  }
  /// The signature of the messages to and from a peer.
  uint32_t signature_with(int peer) const {
    const std::vector<uint32_t>& pairs = tables->pair_signatures;
    return pairs.empty() ? signature : signature ^ pairs[static_cast<size_t>(peer)];
  }
  /// Its record, or null once the record's place in the ring has gone to a later operation.
  Record* own_record() const { return record->of == this ? record : nullptr; }
  void retain() { end.retain(call.stream != nullptr); }
  /// True if that was the last reference.
  bool drop() { return end.drop(call.stream != nullptr); }
  /// As new, for the next call; what belongs to its plan stays.
  void renew() {
    started = false;
    health.renew();
    end.renew();
  }
};

/// How the flight recorder puts it down when it is called.
Record record_of(const Operation& op);
/// "operation 812 (AllReduce of 1024 float (sum)) of communicator world"
std::string describe(const Operation& op);

}  // namespace weft::engine
