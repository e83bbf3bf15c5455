// BoundOperation: the last short collective of a communicator that its caller may do alone
// (PlanTables::fast), kept with its operation. A call like it needs no plan, no new operation and few checks:
// only its buffers have to be looked at.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "engine/context/operation_table.h"
#include "engine/run/call_streak.h"
#include "engine/run/operation.h"

namespace weft::engine {

class BoundOperation {
 public:
  /// `pool` has the operations' memory.
  explicit BoundOperation(OperationTable& pool) : pool_(pool) {}

  /// Whether an operation is kept, and can do this call: one that differs in its buffers only, if these will
  /// do, and if the call would still get this plan. `streak`: in which the call would be the next.
  bool serves(const Call& call, const CallStreak& streak) const {
    if (!op_) return false;
    const Call& kept = op_->call;
    if (kept.collective != call.collective || kept.count != call.count || kept.type != call.type ||
        kept.op != call.op || kept.root != call.root)
      return false;
    if (has_root_ && streak.expected(call) != op_->tables->streak) return false;
    return send_.usable(call.send) && recv_.usable(call.recv) &&
           (call.collective != plan::Collective::all_to_all ||
            op_->tables->plan.request.disjoint != overlap(call.send, call.recv, op_->memory.bytes[0]));
  }
  /// The operation, ready for a call that it serves(), with its record in `place`.
  Operation& begin(const Call& call, OpNumber number, Record& place) {
    Operation& op = *op_;
    op.health.verdict_pending = false;
    op.call.send = call.send;
    op.call.recv = call.recv;
    op.memory.use(call.send, call.recv);
    op.number = number;
    op.record = &place;
    place = record_;
    place.number = number;
    if (call.collective != plan::Collective::all_to_all) place.in_place = call.send == call.recv;
    place.queued = place.started = ticks();
    return op;
  }
  /// Takes over an operation that has ended: keeps it if calls like it may be done alone, and releases it
  /// otherwise. `traced`: a trace is being written.
  void keep_or_release(Operation& op, bool traced) {
    const bool shared =
        op.end.references.load(std::memory_order_relaxed) > 1;  // another thread waited for it
    if (shared || traced || !op.tables->fast || op.call.premultiply || op.call.timeout_s != 0 ||
        !op.end.status.ok() || plan::is_transfer(op.call.collective))
      return pool_.release(&op);
    release();
    op.renew();
    op.progress.reset_arrivals(*op.tables);
    has_root_ = plan::has_root(op.call.collective);
    send_ = Buffer(op.memory.bytes[0], op.tables->plan.request.element_bytes);
    recv_ = Buffer(op.memory.bytes[1], op.tables->plan.request.element_bytes);
    record_ = record_of(op);
    op_ = &op;
  }
  /// Keeps nothing any more.
  void release() {
    if (op_) pool_.release(forget());
  }
  /// The same for an operation that the caller goes on with.
  Operation* forget() { return std::exchange(op_, nullptr); }

 private:
  /// What a buffer must be: there, if any bytes are needed, and aligned to its element.
  struct Buffer {
    Buffer() = default;
    Buffer(uint64_t bytes, uint64_t element) : misaligned(bytes > 0 ? element - 1 : 0), needed(bytes > 0) {}
    bool usable(const void* buffer) const {
      return (reinterpret_cast<uintptr_t>(buffer) & misaligned) == 0 && (buffer || !needed);
    }
    uintptr_t misaligned = 0;  // bits that an aligned address does not have
    bool needed = false;
  };

  OperationTable& pool_;
  Operation* op_ = nullptr;
  bool has_root_ = false;  // else every streak has the same plan
  Buffer send_, recv_;
  Record record_;  // of the next call, but for what begin() sets
};

}  // namespace weft::engine
