#include "engine/context/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "engine/context/context.h"
#include "engine/failure/verdict.h"
#include "engine/gpu/device_run.h"
#include "engine/run/communicator.h"
#include "engine/run/message_kind.h"

namespace weft::engine {
namespace {

/// How often an early message is read once there are many.
constexpr int64_t kEarlyNs = 1'000'000;

/// Where a payload belongs in an operation's memory; null if it does not fit there, or if that is GPU memory.
std::byte* target(const Operation& op, int from, const transport::Envelope& envelope) {
  if (!op.fits(envelope, from)) return nullptr;
  if (op.device && op.device->on_path().has_proxy()) return op.device->on_path().proxy_slot(from, envelope);
  std::byte* const base = op.device ? op.device->landing(static_cast<plan::Space>(envelope.space))
                                    : op.memory.base[envelope.space];
  const uint64_t begin = op.shared_with(from, static_cast<plan::Space>(envelope.space)).begin;
  return base ? base + begin + envelope.offset : nullptr;
}

bool exposes(MessageKind kind) {
  return kind == MessageKind::expose || kind == MessageKind::expose_staged ||
         kind == MessageKind::expose_device;
}

}  // namespace

Inbox::Inbox(Context& context) : context_(context), stash_(settings().early_bytes) {}

void Inbox::retire(const Communicator& comm) {
  ended_.add(comm);
  stash_.drop(comm.id());
}

bool Inbox::expects(int peer, const transport::Envelope& envelope) const {
  return context_.operations().find(peer, envelope) != nullptr;
}

void Inbox::lost(int peer, const Status& why) { context_.failures().on_connection_lost(peer, why); }

void* Inbox::place(int peer, const transport::Envelope& envelope) {
  const Operation* const op = context_.operations().find(peer, envelope);
  if (!op && handler_ && envelope.op == kProbeNumber) return handler_->place(envelope);
  if (!op) return nullptr;
  const int from = op->comm->members().rank_of_world(peer);
  if (envelope.signature != op->signature_with(from)) return nullptr;
  return static_cast<MessageKind>(envelope.kind) == MessageKind::data ? target(*op, from, envelope) : nullptr;
}

void Inbox::arrived(int peer, const transport::Envelope& envelope, const void* payload) {
  if (Operation* op = context_.operations().find(peer, envelope))
    return deliver(*op, peer, envelope, payload);
  if (handler_ && envelope.op == kProbeNumber) return handler_->arrived(peer, envelope, payload);
  Communicator* const known = context_.find_communicator(envelope.comm);
  if (known ? !known->failure().ok() : ended_.contain(envelope.comm)) return;
  if (known && known->operations().has_ended(envelope.op))
    return Verdict::on_late_message(context_, *known, envelope.op, known->members().rank_of_world(peer));
  const auto kind = static_cast<MessageKind>(envelope.kind);
  if (kind == MessageKind::data && envelope.bytes > 0 && !payload) return;
  if (kind == MessageKind::announce && known && !note_put(*known, peer, envelope, payload)) return;
  keep(peer, envelope, payload, known);
}

// ---- Puts that are announced

// The announcement itself stays in the stash, for the operation that it lets begin.
bool Inbox::note_put(Communicator& comm, int peer, const transport::Envelope& envelope, const void* payload) {
  PutAnnouncement announcement;
  if (!payload || envelope.bytes != sizeof announcement) return false;
  std::memcpy(&announcement, payload, sizeof announcement);
  comm.buffers().windows.note(comm.members().rank_of_world(peer), envelope.op, announcement);
  return true;
}

void Inbox::note_early_puts(Communicator& comm) {
  for (const Stash::Message& message : stash_.find_all(comm.id(), MessageKind::announce))
    (void)note_put(comm, message.peer, message.envelope, message.payload.data());
  if (context_.window_traffic().any_noted()) context_.waiting().wake_progress();
}

// ---- Early messages

// A rank that kept every early message would fill its memory while the ranks that it waits for get no core.
// So a rank that keeps many reads further ones only from peers that an operation here deals with. Two ranks
// that send to each other thus both go on. It also reads one message each kEarlyNs until half of the budget
// is used: a message of another communicator may be behind it. A peer of whom nothing is kept may always say
// something, until the budget is nearly used: a put that it announces begins an operation here.
bool Inbox::takes_more_early(int peer) const {
  if (!stash_.is_half_full() && now_ns() - early_taken_ns_ > kEarlyNs) return true;
  if (!stash_.is_nearly_full() && !stash_.keeps_of(peer)) return true;
  const std::vector<Operation*>& active = context_.operations().active();
  return std::any_of(active.begin(), active.end(), [peer](const Operation* op) {
    return op->progress.deals_with(op->comm->members().rank_of_world(peer), *op->tables);
  });
}

void Inbox::say_half_full(const Communicator& comm, int peer, OpNumber number) {
  said_half_full_ = true;
  log::warn(
      "communicator {}: rank {} is far ahead: it has sent for operation {}, this rank is at {}, and keeps {} "
      "bytes of early messages, half of WEFT_EARLY_BYTES; from now on ranks that are ahead wait until "
      "operations here want their messages",
      comm.name(), comm.members().rank_of_world(peer), number, comm.operations().last_collective(),
      stash_.bytes());
}

// `known` is the communicator of the message; null: it is not created here yet.
void Inbox::keep(int peer, const transport::Envelope& envelope, const void* payload, Communicator* known) {
  if (stash_.is_large()) early_taken_ns_ = now_ns();
  if (stash_.keep(peer, envelope, payload)) {
    if (stash_.is_half_full() && !said_half_full_ && known) say_half_full(*known, peer, envelope.op);
    return;
  }
  if (!known) {
    log::warn(
        "a message of rank {} for a communicator that is not created here yet was dropped: {} bytes of "
        "such messages are kept already (WEFT_EARLY_BYTES)",
        peer, stash_.bytes());
    return;
  }
  context_.failures().fail_later(
      *known,
      fail(Code::system_error,
           "rank {} is too far ahead: it has sent for operation {}, this rank is at {}, and already keeps "
           "{} bytes of early messages; call the operations in step, or raise WEFT_EARLY_BYTES ({})",
           known->members().rank_of_world(peer), envelope.op, known->operations().last_collective(),
           stash_.bytes(), stash_.budget_bytes()));
}

void Inbox::deliver_early(Operation& op) {
  const int peer = op.transfer_peer < 0 ? -1 : op.comm->members().world_rank(op.transfer_peer);
  std::vector<Stash::Message> taken = stash_.take(op.comm->id(), op.number, peer);
  for (const Stash::Message& message : taken) {
    if (op.end.finished.load(std::memory_order_relaxed)) break;
    deliver(op, message.peer, message.envelope, message.payload.empty() ? nullptr : message.payload.data());
  }
  stash_.recycle(std::move(taken));
}

// ---- Messages of operations

void Inbox::deliver(Operation& op, int peer, const transport::Envelope& envelope, const void* payload) {
  Communicator& comm = *op.comm;
  const int from = comm.members().rank_of_world(peer);
  if (envelope.signature != op.signature_with(from)) return Verdict::on_mismatch(context_, op, from);
  const auto fail_for = [&](const Status& why)
                            WEFT_REQUIRES(context_lock) { (void)context_.failures().fail_later(op, why); };
  const plan::Plan& plan = op.tables->plan;
  if (envelope.tag() >= plan.notifications_from(from))
    return fail_for(fail(Code::internal_error, "rank {} sent notification {}, the plan knows {}", from,
                         envelope.tag(), plan.notifications_from(from)));
  const uint32_t number = plan.wait_begin[from] + envelope.tag();
  const auto kind = static_cast<MessageKind>(envelope.kind);
  Result<bool> there = true;
  if (exposes(kind)) {
    there = learn(op, peer, envelope, number, payload);
  } else if (op.device && !op.device->on_path().has_proxy() && kind == MessageKind::data &&
             envelope.bytes > 0 && op.fits(envelope, from)) {
    there = op.device->file(number, envelope, payload);
    op.progress.may_move |= there.ok();
  } else if (kind == MessageKind::data && envelope.bytes > 0 && (payload || !op.fits(envelope, from))) {
    if (Status filed = file_payload(op, from, envelope, payload); !filed) there = filed;
  }
  if (!there) return fail_for(there.status());
  if (!*there) return;
  op.progress.arrived[number] = 1;
  op.progress.may_move = true;
}

Status Inbox::file_payload(Operation& op, int from, const transport::Envelope& envelope,
                           const void* payload) {
  std::byte* const into = target(op, from, envelope);
  if (!into)
    return fail(Code::internal_error, "rank {} sent {} bytes for offset {} of a buffer of {} bytes", from,
                envelope.bytes, envelope.offset, envelope.space > 2 ? 0 : op.memory.bytes[envelope.space]);
  std::memcpy(into, payload, envelope.bytes);
  return {};
}

// Learns where a peer's memory is. False where the notification arrives later.
Result<bool> Inbox::learn(Operation& op, int peer, const transport::Envelope& envelope, uint32_t number,
                          const void* payload) {
  const int32_t handle = op.tables->handle_of_notification[number];
  if (handle < 0 || !payload) return true;
  const int from = op.comm->members().rank_of_world(peer);
  const auto kind = static_cast<MessageKind>(envelope.kind);
  // Nothing of a rank that differs is touched: it gives up, and its memory may be gone.
  if (op.device ? kind == MessageKind::expose : kind != MessageKind::expose)
    return fail(Code::mismatch,
                "rank {} has called it on {} memory, rank {} on {} memory: create the communicator with a "
                "device on all ranks, or on none",
                from, op.device ? "host" : "GPU", op.comm->rank(), op.device ? "GPU" : "host");
  if (kind == MessageKind::expose_device) {
    if (envelope.bytes != sizeof(cuda::SharedMemory))
      return fail(Code::mismatch,
                  "rank {} describes its GPU memory in {} bytes, this library in {}: use one version of "
                  "libweft on all ranks",
                  from, envelope.bytes, sizeof(cuda::SharedMemory));
    cuda::SharedMemory memory;
    std::memcpy(&memory, payload, sizeof memory);
    Result<bool> learned = op.device->learn(handle, number, memory);
    return learned ? learned : Result<bool>(learned.status().in(fmt::format("rank {}", from)));
  }
  if (envelope.bytes != sizeof(transport::RemoteBuffer)) return true;
  PeerBuffer& learned = op.progress.learned[handle];
  std::memcpy(&learned.buffer, payload, sizeof learned.buffer);
  learned.mapped = nullptr;
  if (!context_.fabric().is_local(peer)) return true;
  transport::MappedBuffer reached = context_.fabric().local()->peer_mapping()->map(peer, learned.buffer);
  learned.mapped = reached.address;
  if (reached.mapping) op.exposures.mappings.push_back(std::move(reached.mapping));
  learned.gate = op.comm->gates().of(from);
  return true;
}

}  // namespace weft::engine
