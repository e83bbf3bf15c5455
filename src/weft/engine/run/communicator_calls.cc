// What a communicator makes of a call: a plan from its cache or the tuner, an operation with a number and a
// record, and the way it is run. The other half of communicator.h is in communicator.cc.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/log.h"
#include "device/cuda/surplus_claim.h"
#include "engine/gpu/captures.h"
#include "engine/run/communicator.h"
#include "engine/gpu/device_run.h"
#include "engine/run/interpreter.h"
#include "engine/run/stream.h"

namespace weft::engine {
namespace {

// Plans are kept until their steps together would take about 64 MiB.
constexpr size_t kKeptSteps = 512 << 10;

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

// What all ranks of a collective (or both ends of a transfer) must agree on, as a number.
uint32_t signature_of(const Call& call, const Prepared& prepared) {
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  };
  const bool transfer = plan::is_transfer(call.collective);
  mix((transfer ? 255 : static_cast<uint64_t>(call.collective)) | static_cast<uint64_t>(call.type) << 8 |
      uint64_t{call.splits} << 16);
  mix(call.count);
  if (plan::reduces(call.collective))
    mix(static_cast<uint64_t>(call.op) | uint64_t{call.premultiply} << 8 |
        uint64_t{prepared.plan.request.strict} << 9);
  if (!transfer) mix(static_cast<uint64_t>(call.root));
  mix(prepared.algorithm_hash ^ prepared.plan.request.disjoint);
  return static_cast<uint32_t>(hash);
}

// The other half of a rank's transfer to itself among the calls of a group, or `i` if there is none.
size_t counterpart(const std::vector<GroupCall>& calls, const std::vector<bool>& taken, size_t i) {
  const auto& [comm, call] = calls[i];
  for (size_t other = i + 1; other < calls.size(); ++other) {
    const auto& [its_comm, its_call] = calls[other];
    if (!taken[other] && its_comm == comm && plan::is_transfer(its_call.collective) &&
        its_call.root == call.root && its_call.collective != call.collective)
      return other;
  }
  return i;
}

}  // namespace

Result<const std::shared_ptr<const Prepared>*> Communicator::plan_for(const plan::Request& request, int row) {
  const Wanted wanted{request, row};
  if (last_plan_ && last_wanted_ == wanted) return &last_plan_;
  auto found = plans_.find(wanted);
  if (found == plans_.end()) {
    model::Estimates* const known =
        plan::has_root(request.collective) ? &estimates_[{.request = request}] : nullptr;
    auto choice = model::choose(machine(), request, layout_, limits_, pins_, row, known);
    if (!choice) return choice.status();
    auto prepared = Prepared::make(choice->algorithm->make(request, layout_, choice->limits, rank_), layout_,
                                   row, choice->predicted_us);
    if (planned_steps_ + prepared->plan.steps.size() > kKeptSteps) {
      plans_.clear();
      estimates_.clear();
      planned_steps_ = 0;
    }
    planned_steps_ += prepared->plan.steps.size();
    log::trace("{} of {} bytes: {}", plan::name_of(request.collective), request.bytes(), choice->why);
    found = plans_.emplace(wanted, std::move(prepared)).first;
  }
  last_wanted_ = wanted;
  last_plan_ = found->second;
  return &last_plan_;
}

plan::Request Communicator::request_for(const Call& call) const {
  plan::Request request;
  request.collective = call.collective;
  request.count = call.count;
  request.element_bytes = static_cast<uint32_t>(device::size_of(call.type));
  request.root = call.root;
  request.strict = options_.strict && plan::reduces(call.collective);
  request.disjoint = call.collective == plan::Collective::all_to_all &&
                     !overlap(call.send, call.recv, request.bytes() * static_cast<uint64_t>(size()));
  return request;
}

// An operation for `call`, numbered and recorded, not started.
Operation* Communicator::enroll(const Call& call, const std::shared_ptr<const Prepared>& prepared) {
  Operation* op = context_->acquire();
  op->comm = this;
  op->call = call;
  op->device = call.on_device ? std::make_unique<DeviceRun>(*device_executor_, *op) : nullptr;
  if (op->prepared != prepared) {
    op->prepared = prepared;
    op->laid_out_for = nullptr;
  }
  op->signature = signature_of(call, *op->prepared);
  op->reduction = {call.type, call.op, options_.strict ? device::Order::tree : device::Order::sequential,
                   call.op == device::ReduceOp::avg ? static_cast<uint32_t>(size()) : 1};
  if (plan::is_transfer(call.collective)) {
    const bool sends = call.collective == plan::Collective::send;
    const bool downward = sends ? rank_ > call.root : call.root > rank_;
    op->transfer_peer = call.root;
    op->number = kTransferBit | (downward ? kDownwardBit : 0) |
                 ((sends ? sent_ : received_)[call.root]++ & kTransferMask);
  } else {
    op->transfer_peer = -1;
    op->number = next_number();
    row_.add(call.collective, call.root);
  }
  operation_begun(*op);
  record(*op);
  return op;
}

namespace {

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

void Communicator::record(Operation& op) {
  op.record = &recorder_.next();
  describe_in(*op.record, op);
  op.record->queued = ticks();
}

Result<Communicator::Planned> Communicator::planned(const Call& call, const CallRow& row) {
  if (!failure_.ok()) return failure_;
  if (plan::is_transfer(call.collective) && call.root == rank_)
    return weft::fail(Code::invalid_usage,
                      "rank {} would wait for itself: put its Send and Recv to itself into one group", rank_);
  auto prepared = plan_for(request_for(call), row.expected(call.collective, call.root));
  if (!prepared) return prepared.status();
  return Planned{call, **prepared};
}

Result<Operation*> Communicator::make(const Call& call) {
  auto plan = planned(call, row_);
  if (!plan) return plan.status();
  return enroll(plan->call, plan->prepared);
}

// Whether a call differs from that of the standing operation in its buffers only, and these will do; and
// whether it would still be chosen so, for other calls may have come between.
inline bool Communicator::stands_for(const Asked& asked) const {
  if (!standing_ || !failure_.ok()) return false;
  const Operation& op = *standing_;
  if (op.call.collective != asked.collective || op.call.count != asked.count ||
      static_cast<int>(op.call.type) != asked.type || static_cast<int>(op.call.op) != asked.op ||
      op.call.root != asked.root || row_.expected(asked.collective, asked.root) != op.prepared->row)
    return false;
  const plan::Request& request = op.prepared->plan.request;
  return usable_buffer(asked.send, op.base_bytes[0], request.element_bytes) &&
         usable_buffer(asked.recv, op.base_bytes[1], request.element_bytes) &&
         (asked.collective != plan::Collective::all_to_all ||
          request.disjoint != overlap(asked.send, asked.recv, op.base_bytes[0]));
}

// Does the standing operation, numbered and recorded, for a call that it stands for.
bool Communicator::repeat(Lock& lock, const Asked& asked, Status& outcome) {
  if (!stands_for(asked)) return false;
  Operation& op = *standing_;
  op.verdict_pending = false;
  op.call.send = asked.send;
  op.call.recv = asked.recv;
  op.number = next_number();
  row_.add(asked.collective, asked.root);
  op.record = &recorder_.next();
  *op.record = op.repeated;
  op.record->number = op.number;
  if (asked.collective != plan::Collective::all_to_all) op.record->in_place = asked.send == asked.recv;
  op.record->queued = op.record->started = ticks();
  if (!context_->run_alone(op)) [[unlikely]] {
    standing_ = nullptr;  // nobody else may take it up while the lock is given away
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
    std::swap(op, standing_);
  }
  if (op) context_->release(op);
}

// A rank's transfer to itself: Send and Recv of one group become one copy.
Result<Communicator::Planned> Communicator::planned_self_copy(const Call& send, const Call& recv) {
  if (!failure_.ok()) return failure_;
  if (send.count != recv.count || send.type != recv.type)
    return weft::fail(Code::mismatch, "rank {} sends {} {} to itself but receives {} {}", rank_, send.count,
                      device::name_of(send.type), recv.count, device::name_of(recv.type));
  Call call = recv;
  call.send = send.send;
  call.collective = plan::Collective::all_gather;  // both buffers, of the same size
  plan::Builder builder("self", request_for(call), 1, 0);
  builder.copy(0, builder.input(), builder.output(), call.count * device::size_of(call.type));
  auto prepared = Prepared::make(builder.finish(), topology::Layout({0}));
  call.collective = plan::Collective::recv;
  return Planned{call, std::move(prepared)};
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

Status Communicator::run(const Call& call) {
  if (call.on_device) [[unlikely]]
    return run_on_device(call);
  Lock lock = context_->lock();
  const Asked asked{call.collective,           call.send, call.recv, call.count, static_cast<int>(call.type),
                    static_cast<int>(call.op), call.root};
  Status outcome;
  if (!call.stream && !call.premultiply && repeat(lock, asked, outcome)) return outcome;
  Result<Operation*> made = make(call);
  if (!made) return made.status();
  Operation* const op = *made;
  if (call.stream) {
    call.stream->push(op, Stream::new_batch());
    // A first turn here and now saves the progress thread's wake-up before the first bytes leave. What is
    // long is not worth that: it would hold up a caller that has to compute for the time of its writes.
    if (call.count * device::size_of(call.type) <= kFirstTurnBytes && !context_->has_waiters())
      context_->turn();
    context_->release(op);
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
  if (op->finished.load(std::memory_order_relaxed)) context_->leave();
  else context_->wait(lock, *op);
  Status status = op->status;
  keep_or_release(op);
  return status;
}

// The plan of a group's call that is not `taken` yet; of a transfer to itself, that of both halves.
Result<Communicator::Planned> Communicator::planned_in_group(const std::vector<GroupCall>& calls,
                                                             std::vector<bool>& taken, size_t i,
                                                             const CallRow& row) {
  const auto& [comm, call] = calls[i];
  const bool to_itself = plan::is_transfer(call.collective) && call.root == comm->rank_;
  const size_t other = to_itself ? counterpart(calls, taken, i) : i;
  taken[other] = true;
  if (other == i) return comm->planned(call, row);
  const Call& theirs = calls[other].second;
  return call.collective == plan::Collective::send ? comm->planned_self_copy(call, theirs)
                                                   : comm->planned_self_copy(theirs, call);
}

// What a group comes to, call by call; nothing is started.
Result<std::vector<Communicator::GroupPart>> Communicator::planned_group(
    const std::vector<GroupCall>& calls) {
  std::vector<GroupPart> parts;
  std::vector<bool> taken(calls.size(), false);
  std::unordered_map<const Communicator*, CallRow> rows;  // as they will be
  for (size_t i = 0; i < calls.size(); ++i) {
    if (taken[i]) continue;
    Communicator* const comm = calls[i].first.get();
    const Result<cuda::Capture> capture = comm->capture_of(calls[i].second);
    if (!capture) return capture.status();
    const Lock lock = comm->context_->lock();
    // Graphs are run whenever their owner likes: no row can be told for their calls.
    CallRow captured, &row = *capture ? captured : rows.try_emplace(comm, comm->row_).first->second;
    Result<Planned> plan = planned_in_group(calls, taken, i, row);
    if (!plan) return plan.status();
    const Call& planned = plan->call;
    if (!plan::is_transfer(planned.collective)) row.add(planned.collective, planned.root);
    parts.push_back({comm, plan.take(), *capture});
  }
  return parts;
}

Status Communicator::run_group(std::vector<GroupCall>& calls) {
  const Result<std::vector<GroupPart>> parts = planned_group(calls);
  if (!parts) return parts.status();
  std::optional<cuda::SurplusClaim> claim;
  if (std::any_of(parts->begin(), parts->end(),
                  [](const GroupPart& part) { return part.plan.call.on_device; }))
    claim.emplace();
  Status first_failure;
  auto note = [&](const Status& status) {
    if (first_failure.ok()) first_failure = status;
  };
  // All are started before any is waited for, whatever their order.
  struct OnDevice {
    Operation* op;
    bool first_use;
  };
  std::vector<OnDevice> on_device;
  std::vector<Operation*> waited;
  CapturedGroup captured;
  const uint64_t batch = Stream::new_batch();
  for (const auto& [comm, plan, capture] : *parts) {
    if (capture) {
      note(captured.add(*comm, capture, plan.call, plan.prepared));
      continue;
    }
    const Lock lock = comm->context_->lock();
    if (!comm->failure_.ok()) {  // only now
      note(comm->failure_);
      continue;
    }
    const bool first_use = plan.call.on_device && comm->is_first_use(plan.call);
    Operation* op = comm->enroll(plan.call, plan.prepared);
    if (op->device) {
      // A stream may not wait for one of a group before it has told of all: they may need each other.
      if (Status arrived = comm->arrive_on_device(*op); !arrived) note(arrived);
      on_device.push_back({op, first_use});
    } else if (op->call.stream) {
      op->call.stream->push(op, batch);
      comm->context_->release(op);
    } else {
      comm->context_->start(*op);
      waited.push_back(op);
    }
  }
  note(captured.arrive());
  note(captured.wait());
  for (const auto& [op, first_use] : on_device) {
    const Lock lock = op->context->lock();
    note(op->comm->leave_on_device(*op));
  }
  claim.reset();
  const Deadline patience = first_use_patience();
  for (const auto& [op, first_use] : on_device) {
    Lock lock = op->context->lock();
    if (first_use) op->comm->stay_with(lock, *op, patience);
    if (op->finished.load(std::memory_order_acquire)) note(op->status);
    const bool asynchronous = op->comm->device_executor_->device().has_memory_operations();
    if (asynchronous) op->context->release(op);
    else waited.push_back(op);
  }
  // While one is waited for, its context's others move too; those of other contexts are the progress
  // threads'.
  for (Operation* op : waited)
    if (op->context != waited.front()->context) op->context->wake_progress();
  for (Operation* op : waited) {
    Lock lock = op->context->lock();
    if (op->finished.load()) op->context->leave();
    else op->context->wait(lock, *op);
    if (!op->status.ok()) note(op->status);
    op->context->release(op);
  }
  return first_failure;
}

}  // namespace weft::engine
