#include "engine/run/communicator.h"

#include <algorithm>
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
#include "engine/record/dump.h"
#include "engine/run/interpreter.h"
#include "engine/run/signature.h"
#include "engine/run/stream.h"

namespace weft::engine {
namespace {

// What sets ids of captures apart from those of splits, whose last part is a color.
constexpr uint64_t kGraph = uint64_t{0x67726170} << 32;
constexpr uint64_t kFirstTurnBytes = 64 << 10;  // takes about as long as a thread to wake up

bool overlap(const void* a, const void* b, uint64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(a);
  const auto* const second = static_cast<const std::byte*>(b);
  return first < second + bytes && second < first + bytes;
}

// Elements have powers of two as sizes.
bool usable_buffer(const void* buffer, uint64_t bytes, uint32_t element) {
  return bytes == 0 || (buffer && (reinterpret_cast<uintptr_t>(buffer) & (element - 1)) == 0);
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
  record.in_place = call.collective == plan::Collective::all_to_all ? !op.prepared->plan.request.disjoint
                                                                    : call.send == call.recv;
  record.on_stream = call.stream || call.on_device;
  record.strict = op.prepared->plan.request.strict;
  record.splits = call.splits;
  record.uneven = call.uneven != nullptr;
  record.outcome = Code::in_progress;
  record.root = call.root;
  record.count = call.count;
  record.algorithm = op.prepared->plan.algorithm;
  record.predicted_us = op.prepared->predicted_us;
  record.queued = record.started = record.done = 0;
  record.of = &op;
}

}  // namespace

Record record_of(const Operation& op) {
  Record record;
  describe_in(record, op);
  return record;
}

Communicator::Communicator(std::shared_ptr<Context> context, uint32_t id, std::vector<int> worlds,
                           CommOptions options, Communicator* lane_of)
    : context_(std::move(context)),
      id_(id),
      options_(std::move(options)),
      members_(context_->fabric(), context_->ranks(), context_->rank(), std::move(worlds)),
      gate_(AccessGate::open({context_->job(), id_, context_->rank()})),
      gates_(static_cast<size_t>(size())),
      plans_(context_->fabric(), layout(), rank()),
      parent_(lane_of),
      numbers_(rank(), size(), options_.calls_before),
      recorder_(settings().recorder_ops),
      registrations_(context_->fabric()) {
  if (options_.name.empty()) options_.name = fmt::format("{:08x}", id_);
  install_dump_signal();
  const Lock lock = context_->lock();
  const Fabric& fabric = context_->fabric();
  if (const auto* local = fabric.local()) intra_before_ = local->counters();
  if (const auto* net = fabric.between_nodes()) inter_before_ = net->counters();
  context_->attach(*this);
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
  registrations_.clear();
  if (bound_) context_->operations().release(bound_);
  context_->detach(*this);
}

std::unique_ptr<Communicator> Communicator::make_lane(uint32_t number) {
  CommOptions options = options_;
  options.name = fmt::format("{} graph {}", name(), number);
  auto lane = std::make_unique<Communicator>(context_, hash_32(kGraph, hash_32(number, id_)),
                                             members_.worlds(), std::move(options), this);
  lane->on_device_ = {on_device_.executor, on_device_.direct, on_device_.shares_memory, nullptr, {}};
  return lane;
}

void Communicator::allow_captures() { captures_ = std::make_unique<Captures>(*this); }

// ---- Operations

plan::Request Communicator::request_for(const Call& call) const {
  plan::Request request;
  request.collective = call.collective;
  request.count = call.count;
  request.element_bytes = static_cast<uint32_t>(device::size_of(call.type));
  request.root = call.root;
  request.strict = options_.strict && plan::reduces(call.collective);
  if (call.uneven) {
    request.uneven = call.uneven;
    request.disjoint = call.collective == plan::Collective::all_to_all;
    return request;
  }
  request.disjoint = call.collective == plan::Collective::all_to_all &&
                     !overlap(call.send, call.recv, request.bytes() * static_cast<uint64_t>(size()));
  return request;
}

Result<PlannedCall> Communicator::planned(const Call& call, const CallStreak& streak) {
  if (!failure_.ok()) return failure_;
  if (plan::is_transfer(call.collective) && call.root == rank())
    return weft::fail(Code::invalid_usage,
                      "rank {} would wait for itself: put its Send and Recv to itself into one group",
                      rank());
  auto prepared =
      plans_.find_or_make(request_for(call), streak.expected(call.collective, call.root), machine());
  if (!prepared) return prepared.status();
  return PlannedCall{call, **prepared};
}

Operation* Communicator::enroll(const PlannedCall& planned) {
  const auto& [call, prepared] = planned;
  Operation* const op = context_->operations().acquire();
  op->comm = this;
  op->call = call;
  op->device = call.on_device ? std::make_unique<DeviceRun>(*on_device_.executor, *op) : nullptr;
  if (op->prepared != prepared) {
    op->prepared = prepared;
    op->laid_out_for = nullptr;
  }
  op->signature = signature_of(call, *op->prepared);
  op->timeout_s = call.timeout_s > 0 ? call.timeout_s : options_.timeout_s;
  op->reduction = {call.type, call.op, options_.strict ? device::Order::tree : device::Order::sequential,
                   call.op == device::ReduceOp::avg ? static_cast<uint32_t>(size()) : 1};
  if (plan::is_transfer(call.collective)) {
    op->transfer_peer = call.root;
    op->number = numbers_.next_transfer(call.collective == plan::Collective::send, call.root);
  } else {
    op->transfer_peer = -1;
    op->number = numbers_.next_collective(call.collective, call.root);
  }
  operation_begun(*op);
  record(*op);
  return op;
}

void Communicator::record(Operation& op) {
  op.record = &recorder_.next();
  describe_in(*op.record, op);
  op.record->queued = ticks();
}

Result<Operation*> Communicator::begin(const Call& call, std::shared_ptr<const void> buffers) {
  const auto plan = planned(call, numbers_.streak());
  if (!plan) return plan.status();
  Operation* const op = enroll(*plan);
  op->buffers = std::move(buffers);
  context_->start(*op);
  return op;
}

void Communicator::operation_begun(Operation& op) {
  op.comm_index = static_cast<uint32_t>(operations_.size());
  operations_.push_back(&op);
}

void Communicator::operation_ended(Operation& op) {
  operations_[op.comm_index] = operations_.back();
  operations_[op.comm_index]->comm_index = op.comm_index;
  operations_.pop_back();
}

bool Communicator::has_ended(OpNumber number) const {
  if ((number & kTransferBit) || comes_after(number, numbers_.last_collective())) return false;
  return std::none_of(operations_.begin(), operations_.end(),
                      [&](const Operation* op) { return op->number == number; });
}

std::string Communicator::describe(const Operation& op) const {
  const bool transfer = op.number & kTransferBit;
  const std::string what = record_of(op).describe();
  return transfer ? fmt::format("{} on communicator {}", what, name())
                  : fmt::format("operation {} ({}) of communicator {}", op.number, what, name());
}

const AccessGate* Communicator::gate_of(int rank) {
  std::shared_ptr<const AccessGate>& gate = gates_[rank];
  if (!gate && members_.route(rank)->same_process(world_rank(rank)))
    gate = AccessGate::find({context_->job(), id_, world_rank(rank)});
  return gate.get();
}

// ---- Calls

// Whether a call differs from that of the bound operation in its buffers only, and these will do; and
// whether it would still be chosen so, for other calls may have come between.
inline bool Communicator::stands_for(const Asked& asked) const {
  if (!bound_ || !failure_.ok()) return false;
  const Operation& op = *bound_;
  if (op.call.collective != asked.collective || op.call.count != asked.count ||
      static_cast<int>(op.call.type) != asked.type || static_cast<int>(op.call.op) != asked.op ||
      op.call.root != asked.root ||
      numbers_.streak().expected(asked.collective, asked.root) != op.prepared->streak)
    return false;
  const plan::Request& request = op.prepared->plan.request;
  return usable_buffer(asked.send, op.base_bytes[0], request.element_bytes) &&
         usable_buffer(asked.recv, op.base_bytes[1], request.element_bytes) &&
         (asked.collective != plan::Collective::all_to_all ||
          request.disjoint != overlap(asked.send, asked.recv, op.base_bytes[0]));
}

// Does the bound operation, numbered and recorded, for a call that it stands for.
bool Communicator::repeat(Lock& lock, const Asked& asked, Status& outcome) {
  if (!stands_for(asked)) return false;
  Operation& op = *bound_;
  op.verdict_pending = false;
  op.timeout_s = options_.timeout_s;
  op.call.send = asked.send;
  op.call.recv = asked.recv;
  op.number = numbers_.next_collective(asked.collective, asked.root);
  op.record = &recorder_.next();
  *op.record = op.repeated;
  op.record->number = op.number;
  if (asked.collective != plan::Collective::all_to_all) op.record->in_place = asked.send == asked.recv;
  op.record->queued = op.record->started = ticks();
  if (!run_alone(*context_, op)) [[unlikely]] {
    bound_ = nullptr;  // nobody else may take it up while the lock is given away
    outcome = wait_and_keep(lock, &op);
  }
  return true;
}

// Keeps an operation that has ended for calls like it if it may be done alone, or lets go of it.
void Communicator::keep_or_release(Operation* op) {
  const bool shared = op->references.load(std::memory_order_relaxed) > 1;  // somebody else has waited for it
  const bool keep = op->prepared->brief && !op->call.premultiply && op->status.ok() &&
                    !plan::is_transfer(op->call.collective);
  if (keep && !shared) {
    op->renew();
    reset_arrivals(*op);
    op->repeated = record_of(*op);
    std::swap(op, bound_);
  }
  if (op) context_->operations().release(op);
}

Status Communicator::run(const Call& call) {
  if (call.on_device) [[unlikely]]
    return run_on_device(*this, call);
  Lock lock = context_->lock();
  const Asked asked{call.collective,           call.send, call.recv, call.count, static_cast<int>(call.type),
                    static_cast<int>(call.op), call.root};
  Status outcome;
  const bool plain = !call.stream && !call.premultiply && call.timeout_s == 0 && !call.uneven;
  if (plain && repeat(lock, asked, outcome)) return outcome;
  const auto plan = planned(call, numbers_.streak());
  if (!plan) return plan.status();
  Operation* const op = enroll(*plan);
  if (call.stream) {
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

bool Communicator::repeat(const Asked& asked, Status& outcome) {
  if (options_.device >= 0) return false;
  Lock lock = context_->lock();
  return repeat(lock, asked, outcome);
}

Status Communicator::wait_and_keep(Lock& lock, Operation* op) {
  Status status = context_->result_of(lock, *op);
  keep_or_release(op);
  return status;
}

CallStreak Communicator::streak() {
  const Lock lock = context_->lock();
  return numbers_.streak();
}

void Communicator::pin(const model::Pins& pins) {
  const Lock lock = context_->lock();
  plans_.pin(pins);
  if (bound_) context_->operations().release(std::exchange(bound_, nullptr));
}

void Communicator::set_timeout(double seconds) {
  const Lock lock = context_->lock();
  options_.timeout_s = seconds;
}

CommStats Communicator::stats() {
  const Lock lock = context_->lock();
  const transport::Transport* const local = context_->fabric().local();
  const transport::Transport* const net = context_->fabric().between_nodes();
  CommStats s;
  s.operations = recorder_.total() - operations_.size() + (captures_ ? captures_->operations() : 0);
  s.intra = since(local, intra_before_);
  s.inter = since(net, inter_before_);
  s.node = layout().node_of(rank());
  s.nodes = layout().nodes();
  s.intra_transport = local ? local->describe() : "";
  s.inter_transport = net ? net->describe() : "";
  const Record* last = recorder_.latest();
  const Record* const captured = captures_ ? captures_->latest() : nullptr;
  if (captured && (!last || captured->queued > last->queued)) last = captured;
  if (last) {
    s.last_algorithm = last->algorithm;
    s.last_predicted_us = last->predicted_us;
  }
  return s;
}

Result<void*> Communicator::register_buffer(void* address, size_t bytes) {
  const Lock lock = context_->lock();
  return registrations_.add(address, bytes, on_device_.executor != nullptr);
}

void Communicator::deregister_buffer(void* registration) {
  const Lock lock = context_->lock();
  registrations_.remove(registration);
}

// ---- End and health

Status Communicator::finalize() {
  Lock lock = context_->lock();
  finalized_by_ns_ = now_ns() + static_cast<int64_t>(options_.timeout_s * 1e9);
  const auto next = [&] {
    if (captures_) context_->turn();  // takes in what graphs have come to
    return unfinished();
  };
  while (Operation* op = next()) {
    op->retain();
    context_->wait(lock, *op);
    context_->operations().release(op);
  }
  if (captures_) captures_->close();
  return failure_;
}

Operation* Communicator::unfinished() const {
  if (!operations_.empty()) return operations_.back();
  return captures_ ? captures_->unfinished() : nullptr;
}

void Communicator::fail(const Status& why, bool tell_others) {
  if (parent_) return parent_->fail(why, tell_others);
  if (failure_.ok()) {
    // A rank that fails or aborts leaves; that it has left is the consequence.
    const Status told = why.code() == Code::remote_error ? context_->failures().reported(*this) : Status();
    failure_ = told.ok() ? why : told;
    const std::string recorder = why.code() == Code::aborted ? "" : dump_to_directory(*this);
    log::error("communicator {}: {}{}{}", name(), failure_.message(),
               recorder.empty() ? "" : "; flight recorder: ", recorder);
    if (tell_others && told.ok()) context_->bootstrap().tell_failed(id_, why.message());
  }
  context_->fail_operations(*this, failure_);
  if (captures_) captures_->fail(failure_);
}

void Communicator::fail_as_lane(const Status& why) {
  if (failure_.ok()) failure_ = why;
  context_->fail_operations(*this, failure_);
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
  if (failure_.ok() && !context_->sleepers().any_waiting()) context_->turn();
  return failure_;
}

}  // namespace weft::engine
