#include "engine/run/communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "engine/context/fast_path.h"
#include "engine/context/progress.h"
#include "engine/gpu/captures.h"
#include "engine/gpu/device_calls.h"
#include "engine/gpu/device_run.h"
#include "engine/gpu/stream_path.h"
#include "engine/record/dump.h"
#include "engine/run/signature.h"
#include "engine/run/stream.h"

namespace weft::engine {
namespace {

// Those of graphs, while they are under way. They have deadlines of their own, unless their device has
// failed.
void wait_for_kernels(Lock& lock, const Captures& captures, int64_t by_ns) WEFT_REQUIRES(context_lock) {
  constexpr int64_t kGraceNs = 3'000'000'000;
  while (captures.path_under_way() && now_ns() < by_ns + kGraceNs)
    lock.without([] { std::this_thread::sleep_for(std::chrono::microseconds(20)); });
}

constexpr uint64_t kFirstTurnBytes = 64 << 10;  // takes about as long as a thread to wake up
constexpr int kFirstTurns = 64;                 // so do these

// A short call on an idle stream is tried here and now: where the peers' messages come soon, no other thread
// has to wake up for it. Where ranks share cores, the peers need this one. While another operation is active,
// the caller's turns would also do that one's copies and reductions.
bool may_try(const RunEnvironment& environment, Context& context, const Call& call)
    WEFT_REQUIRES(context_lock) {
  return !environment.oversubscribed && !context.sleepers().any_waiting() && context.operations().empty() &&
         call.stream->idle();
}

void begin_here(Context& context, Operation& op) WEFT_REQUIRES(context_lock) {
  op.call.stream = nullptr;
  context.start(op);
  for (int turns = kFirstTurns; turns > 0 && !op.end.finished.load() && !context.lock_is_wanted(); --turns)
    context.turn();
}

// An operation of the stream that was started outside of it: the stream counts its end, or has it from now
// on.
void hand_to_stream(Context& context, Operation* op, const Call& call, BoundOperation& bound, bool traced)
    WEFT_REQUIRES(context_lock) {
  if (op->end.finished.load(std::memory_order_acquire)) {
    call.stream->count_ended(op->end.status);
    return bound.keep_or_release(*op, traced);
  }
  op->call.stream = call.stream;
  call.stream->adopt(op, Stream::new_batch());
  context.operations().release(op);
  if (!context.sleepers().any_waiting()) context.waiting().wake_progress();
}

transport::Counters since(const transport::Transport* t, const transport::Counters& before) {
  transport::Counters c = t ? t->counters() : transport::Counters{};
  c.messages_sent -= before.messages_sent;
  c.payload_bytes_sent -= before.payload_bytes_sent;
  c.puts -= before.puts;
  c.bytes_read -= before.bytes_read;
  return c;
}

// Field by field into its place: a copy of fields that have just been written waits for the stores.
void describe_in(Record& record, const Operation& op) {
  const Call& call = op.call;
  record.number = op.number;
  record.collective = call.collective;
  record.type = call.type;
  record.op = call.op;
  record.in_place = call.collective == plan::Collective::all_to_all ? !op.tables->plan.request.disjoint
                                                                    : call.send == call.recv;
  record.on_stream = call.stream || call.on_device;
  record.strict = op.tables->plan.request.strict;
  record.purpose = call.purpose;
  record.uneven = call.uneven != nullptr;
  record.outcome = Code::in_progress;
  record.root = call.root;
  record.count = call.count;
  record.algorithm = op.tables->plan.algorithm;
  record.predicted_us = op.tables->predicted_us;
  record.queued = record.started = record.done = 0;
  record.of = &op;
}

}  // namespace

Record record_of(const Operation& op) {
  Record record;
  describe_in(record, op);
  return record;
}

std::string describe(const Operation& op) {
  const std::string what = record_of(op).describe();
  return (op.number & kTransferBit)
             ? fmt::format("{} on communicator {}", what, op.comm->name())
             : fmt::format("operation {} ({}) of communicator {}", op.number, what, op.comm->name());
}

Communicator::Communicator(std::shared_ptr<Context> context, uint32_t id, std::vector<int> worlds,
                           CommOptions options, Communicator* shadowed)
    : context_(std::move(context)),
      id_(id),
      options_(std::move(options)),
      members_(context_->fabric().layout(), context_->fabric().routes(), context_->rank(), std::move(worlds)),
      environment_{id_,
                   members_,
                   context_->workspace(),
                   buffers_.windows,
                   context_->fabric().shm(),
                   context_->trace(),
                   context_->fabric().oversubscribed(),
                   context_->fabric().has_network()},
      gates_(context_->job(), id_, members_),
      plans_(context_->fabric(), members_, options_.strict),
      parent_(shadowed),
      operations_(rank(), size(), options_.calls_before),
      bound_(context_->operations()),
      recorder_(settings().recorder_ops),
      buffers_{Registrations(context_->fabric()), Windows(*this, size())} {
  if (options_.name.empty()) options_.name = fmt::format("{:08x}", id_);
  install_dump_signal();
  const Lock lock = context_->lock();
  const Fabric& fabric = context_->fabric();
  if (const auto* local = fabric.local()) before_.intra = local->counters();
  if (const auto* net = fabric.between_nodes()) before_.inter = net->counters();
  context_->communicators()[id_] = this;
  context_->inbox().note_early_puts(*this);
  // A rank that was here earlier may have failed already: nobody tells that twice.
  if (const Status told = context_->failures().reported(*this); !told) fail(told, false);
  if (const Status loss = context_->failures().first_loss_of(*this); !loss) fail(loss, false);
}

Communicator::~Communicator() {
  ProgressEngine::instance().serve_dumps();  // of this communicator, too
  std::unique_ptr<Captures> captures;  // freed without the lock; a report of a failure may be looking at them
  {
    const Lock lock = context_->lock();
    captures = std::move(captures_);
  }
  captures.reset();
  const Lock lock = context_->lock();
  buffers_.windows.clear();
  buffers_.registrations.clear();
  on_device_.paths.clear();
  bound_.release();
  context_->communicators().erase(id_);
  context_->inbox().retire(*this);
  context_->failures().forget(*this);
}

void Communicator::allow_captures() { captures_ = std::make_unique<Captures>(*this); }

// ---- Operations

Result<const std::shared_ptr<const PlanTables>*> Communicator::tables_for(const Call& call,
                                                                          const CallStreak& streak) {
  if (!failure().ok()) return failure();
  if (call.one_sided && call.root == rank()) return buffers_.windows.make_plan(call);
  if (plan::is_transfer(call.collective) && call.root == rank())
    return weft::fail(Code::invalid_usage,
                      "rank {} would wait for itself: put its Send and Recv to itself into one group",
                      rank());
  return plans_.find_or_make(plans_.request_for(call), streak.expected(call), machine());
}

Operation* Communicator::enroll(const Call& call, const std::shared_ptr<const PlanTables>& tables) {
  Operation* const op = context_->operations().acquire();
  op->comm = this;
  op->call = call;
  op->device = call.on_device ? std::make_unique<DeviceRun>(*on_device_.executor, *op) : nullptr;
  if (op->tables != tables) {
    op->tables = tables;
    op->progress.laid_out_for = nullptr;
  }
  op->memory.use(call.send, call.recv, *tables);
  op->signature = signature_of(call, *op->tables);
  op->end.timeout_s = call.timeout_s > 0 ? call.timeout_s : options_.timeout_s;
  op->reduction = {call.type, call.op, options_.strict ? device::Order::tree : device::Order::sequential,
                   call.op == device::ReduceOp::avg ? static_cast<uint32_t>(size()) : 1};
  if (plan::is_transfer(call.collective)) {
    op->transfer_peer = call.root;
    if (!call.one_sided) {
      op->number = operations_.next_transfer(call.collective == plan::Collective::send, call.root);
    } else {
      op->number = call.one_sided->number ? call.one_sided->number : operations_.next_put(call.root);
      op->call.one_sided = buffers_.windows.claimed(call);
      op->progress.put_sequence = call.one_sided->sequence;
    }
  } else {
    op->transfer_peer = -1;
    op->number = operations_.next_collective(call.collective, call.root);
  }
  operations_.add(*op);
  op->record = &recorder_.next();
  describe_in(*op->record, *op);
  op->record->queued = ticks();
  return op;
}

Result<Operation*> Communicator::begin(const Call& call, std::shared_ptr<const void> buffers) {
  const auto tables = tables_for(call, operations_.streak());
  if (!tables) return tables.status();
  Operation* const op = enroll(call, **tables);
  op->buffers = std::move(buffers);
  context_->start(*op);
  return op;
}

// ---- Calls

// Does a call that is like the last one; false: it is not.
[[gnu::always_inline]] inline bool Communicator::repeat(Lock& lock, const Call& call, Status& outcome) {
  if (!failure().ok() || !bound_.serves(call, operations_.streak())) return false;
  Operation& op =
      bound_.begin(call, operations_.next_collective(call.collective, call.root), recorder_.next());
  if (!run_alone(*context_, op)) [[unlikely]] {
    (void)bound_.forget();  // no other thread may take it up while the lock is given away
    outcome = wait_and_keep(lock, &op);
  }
  return true;
}

// A call on a stream that is like the last one; false: it is not, and nothing has happened.
bool Communicator::repeat_on_stream(const Call& call) {
  if (!failure().ok() || !bound_.serves(call, operations_.streak()) ||
      !may_try(environment_, *context_, call))
    return false;
  Operation& op =
      bound_.begin(call, operations_.next_collective(call.collective, call.root), recorder_.next());
  op.record->on_stream = true;
  if (run_alone(*context_, op)) call.stream->count_ended(Status());
  else hand_to_stream(*context_, bound_.forget(), call, bound_, environment_.trace != nullptr);
  return true;
}

Status Communicator::run(const Call& call) {
  if (call.on_device) [[unlikely]]
    return run_on_device(*this, call);
  Lock lock = context_->lock();
  Status outcome;
  const bool plain = !call.premultiply && call.timeout_s == 0 && !call.uneven && !call.one_sided;
  if (plain && (call.stream ? repeat_on_stream(call) : repeat(lock, call, outcome))) return outcome;
  const auto tables = tables_for(call, operations_.streak());
  if (!tables) return tables.status();
  Operation* const op = enroll(call, **tables);
  if (call.stream) {
    if (plain && op->tables->fast && may_try(environment_, *context_, call)) {
      begin_here(*context_, *op);
      hand_to_stream(*context_, op, call, bound_, environment_.trace != nullptr);
      return {};
    }
    call.stream->push(op, Stream::new_batch());
    const uint64_t bytes =
        (call.uneven ? plan::Uneven::extent(call.uneven->given) : call.count) * device::size_of(call.type);
    // A first turn here and now saves the progress thread's wake-up before the first bytes leave. What is
    // long is not worth that: it would hold up a caller that has to compute for the time of its writes.
    if (bytes <= kFirstTurnBytes && !context_->sleepers().any_waiting()) context_->turn();
    context_->operations().release(op);
    return {};
  }
  context_->start(*op);
  return wait_and_keep(lock, op);
}

bool Communicator::repeat(const Call& call, Status& outcome) {
  if (options_.device >= 0) return false;
  Lock lock = context_->lock();
  return repeat(lock, call, outcome);
}

Status Communicator::wait_and_keep(Lock& lock, Operation* op) {
  Status status = context_->waiting().result_of(lock, *op);
  bound_.keep_or_release(*op, environment_.trace);
  return status;
}

void Communicator::pin(const model::Pins& pins) {
  const Lock lock = context_->lock();
  plans_.pin(pins);
  for (const auto& path : on_device_.paths) path->leave_to_steps();
  bound_.release();
}

void Communicator::set_timeout(double seconds) {
  const Lock lock = context_->lock();
  options_.timeout_s = seconds;
  bound_.release();
}

CommStats Communicator::stats() {
  const Lock lock = context_->lock();
  const transport::Transport* const local = context_->fabric().local();
  const transport::Transport* const net = context_->fabric().between_nodes();
  CommStats s;
  s.operations =
      recorder_.total() - operations_.unfinished().size() + (captures_ ? captures_->operations() : 0);
  s.intra = since(local, before_.intra);
  s.inter = since(net, before_.inter);
  s.node = members_.layout().node_of(rank());
  s.nodes = members_.layout().nodes();
  s.intra_transport = local ? local->describe() : "";
  s.inter_transport = net ? net->describe() : "";
  if (on_device_.executor) {
    if (local) s.intra_transport = on_device_.shares_memory ? "mapped GPU memory" : "staged GPU memory";
    if (net) s.inter_transport += on_device_.direct ? ", GPUDirect" : ", staged";
  }
  const Record* last = recorder_.latest();
  const Record* const captured = captures_ ? captures_->latest() : nullptr;
  if (captured && (!last || captured->queued > last->queued)) last = captured;
  if (last) {
    s.last_algorithm = last->algorithm;
    s.last_predicted_us = last->predicted_us;
  } else if (captures_ && s.operations > 0) {
    s.last_algorithm = captures_->algorithm_on_path();
  }
  return s;
}

// ---- End and health

Status Communicator::finalize() {
  Lock lock = context_->lock();
  finalized_by_ns_ = now_ns() + static_cast<int64_t>(options_.timeout_s * 1e9);
  const auto next = [&]() WEFT_REQUIRES(context_lock) -> Operation* {
    if (captures_) context_->turn();  // takes in what graphs have come to
    if (!operations_.unfinished().empty()) return operations_.unfinished().back();
    return captures_ ? captures_->unfinished() : nullptr;
  };
  while (Operation* op = next()) {
    op->retain();
    context_->waiting().wait(lock, *op);
    context_->operations().release(op);
  }
  if (captures_) {
    wait_for_kernels(lock, *captures_, finalized_by_ns_);
    captures_->close();
    wait_for_kernels(lock, *captures_, finalized_by_ns_);  // of a launch that began meanwhile
    captures_->check();
  }
  return failure();
}

void Communicator::fail(const Status& why, bool tell_others) {
  if (parent_) return parent_->fail(why, tell_others);
  if (health_.fail(why, context_->failures().reported(*this))) {
    const std::string recorder = why.code() == Code::aborted ? "" : dump_to_directory(*this);
    log::error("communicator {}: {}{}{}", name(), failure().message(),
               recorder.empty() ? "" : "; flight recorder: ", recorder);
    if (tell_others && !health_.by_report()) context_->bootstrap().tell_failed(id_, why.message());
  }
  context_->fail_operations(*this, failure());
  if (captures_) captures_->fail();
}

void Communicator::fail_as_shadow() {
  health_ = parent_->health_;
  context_->fail_operations(*this, failure());
}

void Communicator::abort(std::string_view reason) {
  size_t bytes = std::min<size_t>(reason.size(), 400);
  while (bytes < reason.size() && bytes > 0 && (reason[bytes] & 0xC0) == 0x80) --bytes;  // between letters
  const Lock lock = context_->lock();
  fail(weft::fail(Code::aborted, "communicator {} was aborted{}{}", name(), bytes == 0 ? "" : ": ",
                  reason.substr(0, bytes)),
       true);
}

Status Communicator::health() {
  const Lock lock = context_->lock();
  if (failure().ok() && !context_->sleepers().any_waiting()) context_->turn();
  if (captures_) captures_->check();
  return failure();
}

}  // namespace weft::engine
