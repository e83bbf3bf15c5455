// What a context does with what arrives: which operation a message is for, where its payload belongs, and
// what becomes of it if there is none. The rest is in context.cc.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "engine/run/communicator.h"
#include "engine/context/context.h"
#include "engine/gpu/device_run.h"
#include "engine/run/interpreter.h"
#include "job/probe.h"
#include "engine/failure/verdict.h"

namespace weft::engine {
namespace {

/// How often an early message is taken in once there are many.
constexpr int64_t kEarlyNs = 1'000'000;

}  // namespace

Operation* Context::find(int peer, const transport::Envelope& envelope) const {
  auto matches = [&](const Operation& op) {
    return op.number == envelope.op && op.comm->id() == envelope.comm &&
           (op.transfer_peer < 0 || op.comm->world_rank(op.transfer_peer) == peer);
  };
  if (hot_ && matches(*hot_)) return hot_;
  for (Operation* op = const_cast<Context*>(this)->bucket(envelope.comm, envelope.op); op;
       op = op->next_in_bucket)
    if (matches(*op)) return op;
  return nullptr;
}

// Where an envelope's payload belongs in an operation's memory, or null if it does not fit there, or if that
// is GPU memory.
std::byte* Context::target(Operation& op, const transport::Envelope& envelope) {
  if (!op.fits(envelope)) return nullptr;
  std::byte* const base =
      op.device ? op.device->landing(static_cast<plan::Space>(envelope.space)) : op.base[envelope.space];
  return base ? base + envelope.offset : nullptr;
}

void* Context::place(int peer, const transport::Envelope& envelope) {
  Operation* op = find(peer, envelope);
  if (!op && probe_ && envelope.op == kProbeNumber) return probe_->place(envelope);
  if (!op || envelope.signature != op->signature) return nullptr;
  return static_cast<MessageKind>(envelope.kind) == MessageKind::data ? target(*op, envelope) : nullptr;
}

// Who keeps many takes little more from those who are ahead of it, so that they wait. Else it would keep all
// that they send, ever slower, while who is to take it gets no core: long rows of Broadcasts failed so. But
// whoever has to hear from a peer hears it, past what lies before it, and two who send to each other both
// take what comes; and some is taken in at any rate, should another communicator's be behind it, but no more
// than half of what may be kept.
bool Context::takes_more_early(int peer) const {
  if (!stash_.is_half_full() && now_ns() - early_taken_ns_ > kEarlyNs) return true;
  return std::any_of(active_.begin(), active_.end(),
                     [peer](const Operation* op) { return deals_with(*op, peer); });
}

void Context::say_half_full(const Communicator& comm, int peer, OpNumber number) {
  said_half_full_ = true;
  log::warn(
      "communicator {}: rank {} is far ahead: it has sent for operation {}, this rank is at {}, and keeps {} "
      "bytes of early messages, half of WEFT_EARLY_BYTES; from now on ranks that are ahead wait until "
      "operations here want their messages",
      comm.name(), comm.rank_of_world(peer), number, comm.last_called(), stash_.bytes());
}

void Context::arrived(int peer, const transport::Envelope& envelope, const void* payload) {
  if (Operation* op = find(peer, envelope)) return deliver(*op, peer, envelope, payload);
  if (probe_ && envelope.op == kProbeNumber) return probe_->arrived(peer, envelope, payload);
  auto known = communicators_.find(envelope.comm);
  if (known == communicators_.end() ? retired_.contains(envelope.comm) : !known->second->failure().ok())
    return;
  if (known != communicators_.end() && known->second->has_ended(envelope.op))
    return Verdict::on_late_message(*this, *known->second, envelope.op, known->second->rank_of_world(peer));
  if (static_cast<MessageKind>(envelope.kind) == MessageKind::data && envelope.bytes > 0 && !payload) return;
  if (stash_.is_large()) early_taken_ns_ = now_ns();
  if (stash_.keep(peer, envelope, payload)) {
    if (stash_.is_half_full() && !said_half_full_ && known != communicators_.end())
      say_half_full(*known->second, peer, envelope.op);
    return;
  }
  if (known == communicators_.end()) {
    log::warn(
        "a message of rank {} for a communicator that is not created here yet was dropped: {} bytes of "
        "such messages are kept already (WEFT_EARLY_BYTES)",
        peer, stash_.bytes());
    return;
  }
  fail_later(
      *known->second,
      fail(Code::system_error,
           "rank {} is too far ahead: it has sent for operation {}, this rank is at {}, and already keeps "
           "{} bytes of early messages; call the operations in step, or raise WEFT_EARLY_BYTES ({})",
           known->second->rank_of_world(peer), envelope.op, known->second->last_called(), stash_.bytes(),
           stash_.budget_bytes()));
}

void Context::deliver(Operation& op, int peer, const transport::Envelope& envelope, const void* payload) {
  const int from = op.comm->rank_of_world(peer);
  if (envelope.signature != op.signature) return Verdict::on_mismatch(*this, op, from);
  const plan::Plan& plan = op.prepared->plan;
  const uint32_t number = plan.wait_begin[from] + envelope.tag();
  if (number >= plan.wait_begin[from + 1])
    return fail_later(
        *op.comm,
        fail(Code::internal_error, "{}: rank {} sent notification {}, the plan knows {}",
             op.comm->describe(op), from, envelope.tag(), plan.wait_begin[from + 1] - plan.wait_begin[from]));
  const auto kind = static_cast<MessageKind>(envelope.kind);
  if (kind == MessageKind::expose || kind == MessageKind::expose_staged ||
      kind == MessageKind::expose_device) {
    if (!learn(op, peer, envelope, number, payload)) return;
  } else if (op.device && kind == MessageKind::data && envelope.bytes > 0 && op.fits(envelope)) {
    Result<bool> there = op.device->file(number, envelope, payload);
    if (!there) return fail_later(*op.comm, there.status().in(op.comm->describe(op)));
    op.may_move = true;
    if (!*there) return;
  } else if (payload && envelope.bytes > 0) {
    std::byte* into = target(op, envelope);
    if (!into)
      return fail_later(*op.comm, fail(Code::internal_error,
                                       "{}: rank {} sent {} bytes for offset {} of a buffer of {} bytes",
                                       op.comm->describe(op), from, envelope.bytes, envelope.offset,
                                       envelope.space > 2 ? 0 : op.base_bytes[envelope.space]));
    std::memcpy(into, payload, envelope.bytes);
  }
  op.arrived[number] = 1;
  op.may_move = true;
}

void Context::deliver_stashed(Operation& op) {
  const int peer = op.transfer_peer < 0 ? -1 : op.comm->world_rank(op.transfer_peer);
  std::vector<Stash::Message> taken = stash_.take(op.comm->id(), op.number, peer);
  for (const Stash::Message& message : taken) {
    if (op.finished.load(std::memory_order_relaxed)) break;
    deliver(op, message.peer, message.envelope, message.payload.empty() ? nullptr : message.payload.data());
  }
  stash_.recycle(std::move(taken));
}

}  // namespace weft::engine
