#include "engine/run/communicator.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "engine/gpu/captures.h"
#include "engine/record/dump.h"
#include "engine/context/progress.h"
#include "job/tuning.h"
#include "model/estimate.h"

namespace weft::engine {
namespace {

// What sets ids of other kinds apart from those of splits, whose last part is a color.
constexpr uint64_t kShrunk = uint64_t{0x5eed} << 32, kGraph = uint64_t{0x67726170} << 32;

}  // namespace

Communicator::Communicator(std::shared_ptr<Context> context, uint32_t id, std::vector<int> world_of,
                           CommOptions options, Communicator* lane_of)
    : context_(std::move(context)),
      id_(id),
      options_(std::move(options)),
      world_of_(std::move(world_of)),
      layout_({0}),
      parent_(lane_of),
      last_collective_(options_.calls_before & kCollectiveMask),
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
  door_ = Door::open({context_->job(), id_, context_->rank()});
  doors_.resize(size());
  sent_.assign(size(), 0);
  received_.assign(size(), 0);
  if (options_.name.empty()) options_.name = fmt::format("{:08x}", id_);

  limits_.eager_intra_bytes = fabric.eager_intra_bytes();
  limits_.eager_inter_bytes = fabric.eager_inter_bytes();
  pins_ = *model::parse_pins(settings().algo);  // create() has checked it
  pins_.slice_bytes = static_cast<uint64_t>(settings().slice_bytes);
  install_dump_signal();
  Lock lock = context_->lock();
  if (const auto* local = fabric.local()) intra_before_ = local->counters();
  if (const auto* net = fabric.between_nodes()) inter_before_ = net->counters();
  context_->attach(*this);
  // A rank that was here earlier may have failed already: nobody tells that twice.
  if (const Status told = context_->news_of(*this); !told) fail(told, false);
  if (const Status loss = context_->first_loss_of(*this); !loss) fail(loss, false);
}

Communicator::~Communicator() {
  ProgressEngine::instance().serve_dumps();  // of this communicator, too
  std::unique_ptr<Captures> captures;  // freed without the lock; news of a failure may be looking at them now
  {
    const Lock lock = context_->lock();
    captures = std::move(captures_);
  }
  captures.reset();
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
  // Before the others wait for this rank: what is wrong with its device they will not have to hear of.
  if (options.device >= 0)
    if (auto device = device::cuda::Device::open(options.device); !device) return device.status();
  auto context = Context::join(id, rank, ranks, options.host_id, options.device, options.yields_device,
                               Deadline::in_seconds(settings().init_timeout_s));
  if (!context) return context.status();
  if ((*context)->any_yields_device()) options.device = -1;
  const auto comm_id = static_cast<uint32_t>((*context)->job());
  std::vector<int> world_of(ranks);
  std::iota(world_of.begin(), world_of.end(), 0);
  if (options.name.empty()) options.name = "world";
  if ((*context)->wants_measuring()) {
    // A communicator of its own, so that nothing of it shows in the user's.
    CommOptions apart;
    apart.name = "tuning";
    apart.timeout_s = settings().init_timeout_s;
    const std::shared_ptr<Communicator> tuning(
        new Communicator(*context, hash_32(~uint64_t{0}, comm_id), world_of, std::move(apart)));
    WEFT_TRY(measure_machine(**context, *tuning));
  }
  const Siblings siblings = (*context)->all_joined_on_devices() ? Siblings::on_devices : Siblings::mixed;
  std::shared_ptr<Communicator> made(
      new Communicator(context.take(), comm_id, std::move(world_of), std::move(options)));
  WEFT_TRY(made->open_device(siblings, settings().init_timeout_s));
  return made;
}

// ---- children
// ------------------------------------------------------------------------------------------------------

// (lock) Starts the AllGather of a split: `choices` has room for those of all ranks and holds this rank's own
// behind them.
Result<Operation*> Communicator::gather_choices(std::shared_ptr<std::vector<Choice>> choices) {
  Call call;
  call.collective = plan::Collective::all_gather;
  call.send = &choices->back();
  call.recv = choices->data();
  call.count = sizeof(Choice) / sizeof(int32_t);
  call.type = device::DataType::int32;
  call.splits = true;
  auto made = make(call);
  if (!made) return made;
  (*made)->buffers = std::move(choices);
  context_->start(**made);
  return made;
}

Result<Communicator::Making> Communicator::begin_split(int color, int key, CommOptions options) {
  auto choices = std::make_shared<std::vector<Choice>>(world_of_.size() + 1);
  choices->back() = {color, key, options.yields_device ? kYielded : options.device};
  const Lock lock = context_->lock();
  auto gather = gather_choices(choices);
  if (!gather) return gather.status();
  const uint32_t split = ++splits_;
  return Making([=, this, op = *gather]() -> Result<std::shared_ptr<Communicator>> {
    Lock lock = context_->lock();
    if (op->finished.load()) context_->leave();
    else context_->wait(lock, *op);
    const Status gathered = op->status;
    context_->release(op);
    lock.unlock();
    WEFT_TRY(gathered);
    if (color < 0) return std::shared_ptr<Communicator>();
    const std::vector<Choice>& all = *choices;
    std::vector<int> members;
    for (int rank = 0; rank < size(); ++rank)
      if (all[rank].color == color) members.push_back(rank);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return all[a].key < all[b].key; });
    Siblings siblings = Siblings::on_devices;
    CommOptions own = options;
    for (int& member : members) {
      if (all[member].device < 0) siblings = Siblings::mixed;
      if (all[member].device == kYielded) own.device = -1;
      member = world_of_[member];
    }
    const uint32_t id = hash_32(static_cast<uint32_t>(color), hash_32(split, id_));
    return make_child(id, std::move(members), std::move(own), siblings, nullptr);
  });
}

Status Communicator::stay_out_of_split() {
  auto choices = std::make_shared<std::vector<Choice>>(world_of_.size() + 1);
  choices->back() = {-1, 0, -1};
  const Lock lock = context_->lock();
  auto gather = gather_choices(std::move(choices));
  if (!gather) return gather.status();
  ++splits_;
  context_->release(*gather);
  if (!context_->has_waiters()) context_->wake_progress();
  return {};
}

Result<Communicator::Making> Communicator::begin_shrink(const std::vector<int>& excluded, bool abort_first,
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
  // Shrinking asks nobody. Ranks that kept their device would count on what the parent knows of it, where one
  // that took another must not.
  if (options_.device >= 0 && options.device >= 0 && options.device != options_.device)
    return weft::fail(Code::invalid_argument,
                      "config.device is {}, but shrinking keeps the communicator's device, {}: split it for "
                      "another one",
                      options.device, options_.device);
  const Lock lock = context_->lock();
  if (abort_first) fail(weft::fail(Code::aborted, "communicator {} was shrunk", name()), false);
  // Not counted with the splits: one that failed may have been begun on some ranks only.
  uint32_t id = hash_32(kShrunk, hash_32(++shrinks_, id_));
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    if (!out[rank]) members.push_back(world_of_[rank]);
    id = hash_32(out[rank], id);
  }
  return Making([=, this] { return make_child(id, members, options, Siblings::on_devices, this); });
}

Result<std::shared_ptr<Communicator>> Communicator::split(int color, int key, CommOptions options) {
  auto making = begin_split(color, key, std::move(options));
  if (!making) return making.status();
  return (*making)();
}

Result<std::shared_ptr<Communicator>> Communicator::shrink(const std::vector<int>& excluded, bool abort_first,
                                                           CommOptions options) {
  auto making = begin_shrink(excluded, abort_first, std::move(options));
  if (!making) return making.status();
  return (*making)();
}

Result<std::shared_ptr<Communicator>> Communicator::make_child(uint32_t id, std::vector<int> world_of,
                                                               CommOptions options, Siblings siblings,
                                                               const Communicator* shrunk_from) {
  std::shared_ptr<Communicator> made(new Communicator(context_, id, std::move(world_of), std::move(options)));
  WEFT_TRY(made->open_device(siblings, made->options_.timeout_s, shrunk_from));
  return made;
}

std::unique_ptr<Communicator> Communicator::make_lane(uint32_t number) {
  CommOptions options = options_;
  options.name = fmt::format("{} graph {}", name(), number);
  std::unique_ptr<Communicator> lane(
      new Communicator(context_, hash_32(kGraph, hash_32(number, id_)), world_of_, std::move(options), this));
  lane->device_executor_ = device_executor_;
  lane->gpu_direct_ = gpu_direct_;
  lane->shares_gpu_memory_ = shares_gpu_memory_;
  return lane;
}

// ---- questions
// -----------------------------------------------------------------------------------------------------

Result<double> Communicator::predict_us(const Call& call, const CallRow& row) {
  auto choice = model::choose(machine(), request_for(call), layout_, limits_, pins_,
                              row.expected(call.collective, call.root));
  if (!choice) return choice.status();
  return choice->predicted_us;
}

CallRow Communicator::row() {
  const Lock lock = context_->lock();
  return row_;
}

bool Communicator::can(const Call& call, std::string_view algorithm) const {
  const plan::Algorithm* found = plan::find_algorithm(call.collective, algorithm);
  return found && found->fits(request_for(call), layout_, limits_).ok();
}

Result<model::Choice> Communicator::choose_on(const model::Machine& machine, const Call& call,
                                              const model::Pins& pins) {
  return model::choose(machine, request_for(call), layout_, limits_, pins);
}

double Communicator::row_us_on(const model::Machine& machine, const Call& call, std::string_view algorithm) {
  const plan::Request request = request_for(call);
  const plan::Algorithm* const found = plan::find_algorithm(request.collective, algorithm);
  const Result<model::Estimate> row =
      model::estimate(*found, request, layout_, machine, limits_, model::Calls::row);
  return row.ok() ? row->us : 0;
}

void Communicator::pin(const model::Pins& pins) {
  const Lock lock = context_->lock();
  const uint64_t slice_bytes = pins_.slice_bytes;
  pins_ = pins;
  pins_.slice_bytes = slice_bytes;
  plans_.clear();
  planned_steps_ = 0;
  estimates_.clear();
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
  s.operations = recorder_.total() - operations_.size() + (captures_ ? captures_->operations() : 0);
  s.intra = since(local, intra_before_);
  s.inter = since(net, inter_before_);
  s.node = layout_.node_of(rank_);
  s.nodes = layout_.nodes();
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
  Lock lock = context_->lock();
  auto registration = std::make_unique<Registration>();
  // GPU memory is never the transports' own affair: what they need of it is prepared by the operations.
  for (transport::Transport* t : {context_->fabric().local(), context_->fabric().between_nodes()}) {
    if (!t || device_executor_) continue;
    auto buffer = t->expose(address, bytes);
    if (!buffer) {
      for (auto& [earlier, exposed] : registration->buffers) earlier->unexpose(exposed);
      return buffer.status();
    }
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
  finalized_by_ns_ = now_ns() + static_cast<int64_t>(options_.timeout_s * 1e9);
  const auto next = [&] {
    if (captures_) context_->turn();  // takes in what graphs have come to
    return unfinished();
  };
  while (Operation* op = next()) {
    op->retain();
    context_->wait(lock, *op);
    context_->release(op);
  }
  if (captures_) captures_->close();
  return failure_;
}

Operation* Communicator::unfinished() const {
  if (!operations_.empty()) return operations_.back();
  return captures_ ? captures_->unfinished() : nullptr;
}

const Door* Communicator::door_of(int rank) {
  std::shared_ptr<const Door>& door = doors_[rank];
  if (!door && routes_[rank]->same_process(world_of_[rank]))
    door = Door::find({context_->job(), id_, world_of_[rank]});
  return door.get();
}

// ---- health
// --------------------------------------------------------------------------------------------------------

void Communicator::fail(const Status& why, bool tell_others) {
  if (parent_) return parent_->fail(why, tell_others);
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
  if (captures_) captures_->fail(failure_);
}

void Communicator::fail_as_lane(const Status& why) {
  if (failure_.ok()) failure_ = why;
  context_->fail_operations(*this, failure_);
}

void Communicator::abort(std::string_view reason) {
  size_t bytes = std::min<size_t>(reason.size(), 400);
  while (bytes < reason.size() && bytes > 0 && (reason[bytes] & 0xC0) == 0x80) --bytes;  // between letters
  Lock lock = context_->lock();
  fail(weft::fail(Code::aborted, "communicator {} was aborted{}{}", name(), bytes == 0 ? "" : ": ",
                  reason.substr(0, bytes)),
       true);
}

Status Communicator::health() {
  Lock lock = context_->lock();
  if (failure_.ok() && !context_->has_waiters()) context_->turn();
  return failure_;
}

bool Communicator::has_ended(OpNumber number) const {
  if ((number & kTransferBit) || comes_after(number, last_called())) return false;
  return std::none_of(operations_.begin(), operations_.end(),
                      [&](const Operation* op) { return op->number == number; });
}

std::string Communicator::describe(const Operation& op) const {
  const bool transfer = op.number & kTransferBit;
  const std::string what = record_of(op).describe();
  return transfer ? fmt::format("{} on communicator {}", what, name())
                  : fmt::format("operation {} ({}) of communicator {}", op.number, what, name());
}

}  // namespace weft::engine
