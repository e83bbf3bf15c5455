#include "engine/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "engine/dump.h"
#include "engine/stream.h"
#include "engine/tuning.h"

namespace weft::engine {
namespace {

// Plans are kept until their steps together would take about 64 MiB.
constexpr size_t kKeptSteps = 512 << 10;

uint32_t mix(uint32_t hash, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) hash = (hash ^ static_cast<uint8_t>(value >> (8 * byte))) * 16777619u;
  return hash;
}

bool is_transfer(const Call& call) {
  return call.collective == plan::Collective::send || call.collective == plan::Collective::recv;
}

bool overlap(const Call& call, int ranks) {
  const uint64_t bytes = call.count * device::size_of(call.type) * static_cast<uint64_t>(ranks);
  const auto* send = static_cast<const std::byte*>(call.send);
  const auto* recv = static_cast<const std::byte*>(call.recv);
  return send < recv + bytes && recv < send + bytes;
}

// What all ranks of a collective (or both ends of a transfer) must agree on, as a number.
uint32_t signature_of(const Call& call, const Prepared& prepared) {
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  };
  const bool transfer = is_transfer(call);
  mix((transfer ? 255 : static_cast<uint64_t>(call.collective)) | static_cast<uint64_t>(call.type) << 8);
  mix(call.count);
  if (plan::reduces(call.collective))
    mix(static_cast<uint64_t>(call.op) | uint64_t{call.premultiply} << 8 |
        uint64_t{prepared.plan.request.strict} << 9);
  if (!transfer) mix(static_cast<uint64_t>(call.root));
  mix(prepared.algorithm_hash ^ prepared.plan.request.disjoint);
  return static_cast<uint32_t>(hash);
}

// Whether two calls differ in nothing but where their data is. Pre-multiplied sums carry data of their own.
bool same_but_buffers(const Call& a, const Call& b) {
  return a.collective == b.collective && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.root == b.root && !a.premultiply && !b.premultiply;
}

// The other half of a rank's transfer to itself among the calls of a group, or `i` if there is none.
size_t counterpart(const std::vector<GroupCall>& calls, const std::vector<bool>& taken, size_t i) {
  const auto& [comm, call] = calls[i];
  for (size_t other = i + 1; other < calls.size(); ++other) {
    const auto& [its_comm, its_call] = calls[other];
    if (!taken[other] && its_comm == comm && is_transfer(its_call) && its_call.root == call.root &&
        its_call.collective != call.collective)
      return other;
  }
  return i;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Context> context, uint32_t id, std::vector<int> world_of,
                           CommOptions options)
    : context_(std::move(context)),
      id_(id),
      options_(std::move(options)),
      world_of_(std::move(world_of)),
      layout_({0}),
      recorder_(settings().recorder_ops) {
  const Fabric& fabric = context_->fabric();
  rank_of_world_.assign(context_->ranks(), -1);
  std::vector<int> node_of;
  for (int rank = 0; rank < size(); ++rank) {
    const int world = world_of_[rank];
    rank_of_world_[world] = rank;
    node_of.push_back(fabric.layout().node_of(world));
    routes_.push_back(fabric.route(world));
  }
  rank_ = rank_of_world_[context_->rank()];
  layout_ = topology::Layout(node_of);
  sent_.assign(size(), 0);
  received_.assign(size(), 0);
  if (options_.name.empty()) options_.name = fmt::format("{:08x}", id_);
  options_.strict = options_.strict || settings().strict;

  limits_.eager_intra_bytes = fabric.eager_intra_bytes();
  if (const auto* net = fabric.between_nodes()) limits_.eager_inter_bytes = net->eager_bytes();
  pins_ = *model::parse_pins(settings().algo);  // create() has checked it
  pins_.slice_bytes = static_cast<uint64_t>(settings().slice_bytes);
  install_dump_signal();
  Lock lock = context_->lock();
  if (const auto* local = fabric.local()) intra_before_ = local->counters();
  if (const auto* net = fabric.between_nodes()) inter_before_ = net->counters();
  context_->attach(*this);
}

Communicator::~Communicator() {
  while (!registrations_.empty()) deregister_buffer(registrations_.back().get());
  Lock lock = context_->lock();
  if (standing_) context_->release(standing_);
  context_->detach(*this);
}

Result<std::shared_ptr<Communicator>> Communicator::create(const bootstrap::UniqueId& id, int rank, int ranks,
                                                           CommOptions options) {
  WEFT_TRY(settings_status());
  auto pins = model::parse_pins(settings().algo);
  if (!pins) return pins.status();
  auto context =
      Context::join(id, rank, ranks, options.host_id, Deadline::in_seconds(settings().init_timeout_s));
  if (!context) return context.status();
  uint32_t comm_id = 2166136261u;
  for (std::byte b : id.bytes) comm_id = (comm_id ^ static_cast<uint8_t>(b)) * 16777619u;
  std::vector<int> world_of(ranks);
  std::iota(world_of.begin(), world_of.end(), 0);
  if (options.name.empty()) options.name = "world";
  if ((*context)->wants_measuring()) {
    // A communicator of its own, so that nothing of it shows in the user's.
    CommOptions apart;
    apart.name = "tuning";
    apart.timeout_s = settings().init_timeout_s;
    const std::shared_ptr<Communicator> tuning(
        new Communicator(*context, mix(comm_id, ~uint64_t{0}), world_of, std::move(apart)));
    WEFT_TRY(measure_machine(**context, *tuning));
  }
  return std::shared_ptr<Communicator>(
      new Communicator(context.take(), comm_id, std::move(world_of), std::move(options)));
}

// ---- children
// ------------------------------------------------------------------------------------------------------

uint32_t Communicator::child_id(uint32_t salt) const { return mix(mix(id_, children_), salt); }

Result<std::shared_ptr<Communicator>> Communicator::split(int color, int key, CommOptions options) {
  struct Choice {
    int32_t color, key;
  };
  std::vector<Choice> all(size());
  const Choice mine{color, key};
  Call call;
  call.collective = plan::Collective::all_gather;
  call.send = &mine;
  call.recv = all.data();
  call.count = 2;
  call.type = device::DataType::int32;
  WEFT_TRY(run(call));
  ++children_;
  if (color < 0) return std::shared_ptr<Communicator>();

  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank)
    if (all[rank].color == color) members.push_back(rank);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return all[a].key < all[b].key; });
  for (int& member : members) member = world_of_[member];
  return std::shared_ptr<Communicator>(new Communicator(context_, child_id(static_cast<uint32_t>(color)),
                                                        std::move(members), std::move(options)));
}

Result<std::shared_ptr<Communicator>> Communicator::shrink(const std::vector<int>& excluded, bool abort_first,
                                                           CommOptions options) {
  std::vector<bool> out(size(), false);
  for (int rank : excluded) {
    if (rank < 0 || rank >= size())
      return weft::fail(Code::invalid_root, "excluded rank {} is not in [0, {})", rank, size());
    out[rank] = true;
  }
  if (out[rank_])
    return weft::fail(Code::invalid_argument, "rank {} excludes itself: only ranks that stay call shrink",
                      rank_);
  if (abort_first) fail(weft::fail(Code::aborted, "communicator {} was shrunk", name()), false);
  ++children_;
  uint32_t salt = 0x5eed;
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    if (!out[rank]) members.push_back(world_of_[rank]);
    salt = mix(salt, out[rank]);
  }
  return std::shared_ptr<Communicator>(
      new Communicator(context_, child_id(salt), std::move(members), std::move(options)));
}

// ---- calls
// ---------------------------------------------------------------------------------------------------------

Result<const std::shared_ptr<const Prepared>*> Communicator::plan_for(const plan::Request& request) {
  if (last_plan_ && last_request_ == request) return &last_plan_;
  auto found = plans_.find(request);
  if (found == plans_.end()) {
    auto choice = model::choose(context_->machine(), request, layout_, limits_, pins_);
    if (!choice) return choice.status();
    auto prepared = Prepared::make(choice->algorithm->make(request, layout_, choice->limits, rank_), layout_);
    if (planned_steps_ + prepared->plan.steps.size() > kKeptSteps) {
      plans_.clear();
      planned_steps_ = 0;
    }
    planned_steps_ += prepared->plan.steps.size();
    log::trace("{} of {} bytes: {}", plan::name_of(request.collective), request.bytes(), choice->why);
    found = plans_.emplace(request, std::move(prepared)).first;
  }
  last_request_ = request;
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
  request.disjoint = call.collective == plan::Collective::all_to_all && !overlap(call, size());
  return request;
}

// An operation for `call`, numbered and recorded, not started.
Operation* Communicator::enroll(const Call& call, const std::shared_ptr<const Prepared>& prepared) {
  Operation* op = context_->acquire();
  op->comm = this;
  op->call = call;
  if (op->prepared != prepared) {
    op->prepared = prepared;
    op->laid_out_for = nullptr;
  }
  op->signature = signature_of(call, *op->prepared);
  op->reduction = {call.type, call.op, options_.strict ? device::Order::tree : device::Order::sequential,
                   call.op == device::ReduceOp::avg ? static_cast<uint32_t>(size()) : 1};
  if (is_transfer(call)) {
    const bool sends = call.collective == plan::Collective::send;
    const bool downward = sends ? rank_ > call.root : call.root > rank_;
    op->transfer_peer = call.root;
    op->number = kTransferBit | (downward ? kDownwardBit : 0) |
                 ((sends ? sent_ : received_)[call.root]++ & kTransferMask);
  } else {
    op->transfer_peer = -1;
    op->number = next_collective_++ & kCollectiveMask;
  }
  operation_begun(*op);
  record(*op);
  return op;
}

void Communicator::record(Operation& op) {
  const Call& call = op.call;
  Record& record = recorder_.next();
  record.number = op.number;
  record.collective = call.collective;
  record.type = call.type;
  record.op = call.op;
  record.in_place = call.send == call.recv;
  record.on_stream = call.stream != nullptr;
  record.strict = op.prepared->plan.request.strict;
  record.outcome = Code::in_progress;
  record.root = call.root;
  record.count = call.count;
  record.algorithm = op.prepared->plan.algorithm;
  record.queued = ticks();
  record.started = record.done = 0;
  op.record = &record;
}

Result<Operation*> Communicator::make(const Call& call) {
  if (!failure_.ok()) return failure_;
  if (is_transfer(call) && call.root == rank_)
    return weft::fail(Code::invalid_usage,
                      "rank {} would wait for itself: put its Send and Recv to itself into one group", rank_);
  auto prepared = plan_for(request_for(call));
  if (!prepared) return prepared.status();
  return enroll(call, **prepared);
}

// The standing operation, numbered and recorded for a call that differs from its last one in the buffers
// only; null if there is none. It stands no longer, so that no other thread takes it up.
Operation* Communicator::make_again(const Call& call) {
  if (!standing_ || call.stream || !same_but_buffers(standing_->call, call) || !failure_.ok()) return nullptr;
  if (call.collective == plan::Collective::all_to_all &&
      standing_->prepared->plan.request.disjoint == overlap(call, size()))
    return nullptr;
  Operation& op = *std::exchange(standing_, nullptr);
  op.verdict_pending = false;
  op.call.send = call.send;
  op.call.recv = call.recv;
  op.number = next_collective_++ & kCollectiveMask;
  record(op);
  return &op;
}

// Keeps an operation that has ended for make_again() if it may be done alone, or lets go of it.
void Communicator::keep_or_release(Operation* op) {
  const bool shared = op->references.load(std::memory_order_relaxed) > 1;  // somebody else has waited for it
  const bool keep = op->prepared->brief && !op->call.premultiply && op->status.ok() && !is_transfer(op->call);
  if (keep && !shared) {
    op->renew();
    std::swap(op, standing_);
  }
  if (op) context_->release(op);
}

// A rank's transfer to itself: Send and Recv of one group become one copy.
Result<Operation*> Communicator::make_self_copy(const Call& send, const Call& recv) {
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
  return enroll(call, prepared);
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
  Lock lock = context_->lock();
  Operation* op = make_again(call);
  if (op) {
    if (context_->run_alone(*op)) {
      std::swap(op, standing_);
      if (op) context_->release(op);  // another thread's
      return {};
    }
  } else {
    Result<Operation*> made = make(call);
    if (!made) return made.status();
    op = *made;
    if (call.stream) {
      call.stream->push(op, Stream::new_batch());
      // A first turn here and now saves the progress thread's wake-up before the first bytes leave.
      if (!context_->has_waiters()) context_->turn();
      context_->release(op);
      return {};
    }
    context_->start(*op);
  }
  if (!op->finished.load(std::memory_order_relaxed)) context_->wait(lock, *op);
  Status status = op->status;
  keep_or_release(op);
  return status;
}

Status Communicator::run_group(std::vector<GroupCall>& calls) {
  Status first_failure;
  auto note = [&](const Status& status) {
    if (first_failure.ok()) first_failure = status;
  };
  // All are started before any is waited for, whatever their order.
  std::vector<Operation*> waited;
  std::vector<bool> taken(calls.size(), false);
  const uint64_t batch = Stream::new_batch();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (taken[i]) continue;
    auto& [comm, call] = calls[i];
    Lock lock = comm->context_->lock();
    const bool to_itself = is_transfer(call) && call.root == comm->rank_;
    const size_t other = to_itself ? counterpart(calls, taken, i) : i;
    taken[other] = true;
    const bool sends = call.collective == plan::Collective::send;
    Result<Operation*> made = other == i ? comm->make(call)
                              : sends    ? comm->make_self_copy(call, calls[other].second)
                                         : comm->make_self_copy(calls[other].second, call);
    if (!made) {
      note(made.status());
      continue;
    }
    Operation* op = *made;
    if (op->call.stream) {
      op->call.stream->push(op, batch);
      comm->context_->release(op);
    } else {
      comm->context_->start(*op);
      waited.push_back(op);
    }
  }
  // While one is waited for, its context's others move too; those of other contexts are the progress
  // threads'.
  for (Operation* op : waited)
    if (op->context != waited.front()->context) op->context->wake_progress();
  for (Operation* op : waited) {
    Lock lock = op->context->lock();
    if (!op->finished.load()) op->context->wait(lock, *op);
    if (!op->status.ok()) note(op->status);
    op->context->release(op);
  }
  return first_failure;
}

Result<double> Communicator::predict_us(const Call& call) {
  auto choice = model::choose(context_->machine(), request_for(call), layout_, limits_, pins_);
  if (!choice) return choice.status();
  return choice->predicted_us;
}

bool Communicator::can(const Call& call, std::string_view algorithm) const {
  const plan::Algorithm* found = plan::find_algorithm(call.collective, algorithm);
  return found && found->fits(request_for(call), layout_, limits_).ok();
}

Result<model::Choice> Communicator::choose_on(const model::Machine& machine, const Call& call,
                                              const model::Pins& pins) {
  return model::choose(machine, request_for(call), layout_, limits_, pins);
}

void Communicator::pin(const model::Pins& pins) {
  const Lock lock = context_->lock();
  const uint64_t slice_bytes = pins_.slice_bytes;
  pins_ = pins;
  pins_.slice_bytes = slice_bytes;
  plans_.clear();
  planned_steps_ = 0;
  last_plan_.reset();
  if (standing_) context_->release(std::exchange(standing_, nullptr));
}

CommStats Communicator::stats() {
  Lock lock = context_->lock();
  auto since = [](const transport::Transport* t, const transport::Counters& before) {
    transport::Counters c = t ? t->counters() : transport::Counters{};
    c.messages_sent -= before.messages_sent;
    c.payload_bytes_sent -= before.payload_bytes_sent;
    c.puts -= before.puts;
    c.bytes_read -= before.bytes_read;
    return c;
  };
  const transport::Transport* local = context_->fabric().local();
  const transport::Transport* net = context_->fabric().between_nodes();
  CommStats s;
  s.operations = recorder_.total() - operations_.size();
  s.intra = since(local, intra_before_);
  s.inter = since(net, inter_before_);
  s.node = layout_.node_of(rank_);
  s.nodes = layout_.nodes();
  s.intra_transport = local ? local->describe() : "";
  s.inter_transport = net ? net->describe() : "";
  s.last_algorithm = recorder_.latest_algorithm();
  return s;
}

Result<void*> Communicator::register_buffer(void* address, size_t bytes) {
  Lock lock = context_->lock();
  auto registration = std::make_unique<Registration>();
  for (transport::Transport* t : {context_->fabric().local(), context_->fabric().between_nodes()}) {
    if (!t) continue;
    auto buffer = t->expose(address, bytes);
    if (!buffer) return buffer.status();
    registration->buffers.emplace_back(t, *buffer);
  }
  registrations_.push_back(std::move(registration));
  return static_cast<void*>(registrations_.back().get());
}

void Communicator::deregister_buffer(void* handle) {
  Lock lock = context_->lock();
  auto found = std::find_if(registrations_.begin(), registrations_.end(),
                            [&](const auto& r) { return r.get() == handle; });
  if (found == registrations_.end()) return;
  for (auto& [transport, buffer] : (*found)->buffers) transport->unexpose(buffer);
  registrations_.erase(found);
}

Status Communicator::finalize() {
  Lock lock = context_->lock();
  while (!operations_.empty()) {
    Operation* op = operations_.back();
    op->retain();
    context_->wait(lock, *op);
    context_->release(op);
  }
  return failure_;
}

// ---- health
// --------------------------------------------------------------------------------------------------------

void Communicator::fail(const Status& why, bool tell_others) {
  if (failure_.ok()) {
    // A rank that fails or aborts leaves; that it has left is the consequence.
    const Status told = why.code() == Code::remote_error ? context_->news_of(*this) : Status();
    failure_ = told.ok() ? why : told;
    const std::string recorder = why.code() == Code::aborted ? "" : dump_to_directory(*this);
    log::error("communicator {}: {}{}{}", name(), failure_.message(),
               recorder.empty() ? "" : "; flight recorder: ", recorder);
    if (tell_others && told.ok()) context_->bootstrap().tell_failed(id_, why.message());
  }
  context_->fail_operations(*this, failure_);
}

void Communicator::abort() {
  Lock lock = context_->lock();
  fail(weft::fail(Code::aborted, "communicator {} was aborted", name()), true);
}

Status Communicator::health() {
  Lock lock = context_->lock();
  if (failure_.ok() && !context_->has_waiters()) context_->turn();
  return failure_;
}

bool Communicator::has_ended(OpNumber number) const {
  if ((number & kTransferBit) || number > last_called()) return false;
  return std::none_of(operations_.begin(), operations_.end(),
                      [&](const Operation* op) { return op->number == number; });
}

std::string Communicator::describe(const Operation& op) const {
  const bool transfer = op.number & kTransferBit;
  const std::string what = op.record->number == op.number ? op.record->describe() : "an operation";
  return transfer ? fmt::format("{} on communicator {}", what, name())
                  : fmt::format("operation {} ({}) of communicator {}", op.number, what, name());
}

}  // namespace weft::engine
