#include "engine/gpu/device_run.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "engine/gpu/captured_calls.h"
#include "engine/gpu/checked_calls.h"
#include "engine/gpu/device_calls.h"
#include "engine/gpu/node_board.h"
#include "engine/gpu/proxy.h"
#include "engine/run/communicator.h"
#include "engine/run/operation.h"

namespace weft::engine {
namespace {

constexpr auto kInput = static_cast<size_t>(plan::Space::input),
               kOutput = static_cast<size_t>(plan::Space::output),
               kScratch = static_cast<size_t>(plan::Space::scratch);

}  // namespace

DeviceRun::DeviceRun(DeviceExecutor& executor, Operation& op) : executor_(executor), op_(op) {
  const CheckedCalls& checked = CheckedCalls::of_this_thread();
  if (const cuda::Place* const input = checked.find(op.call.send)) spaces_[kInput].place = *input;
  if (const cuda::Place* const output = checked.find(op.call.recv)) spaces_[kOutput].place = *output;
}

DeviceRun::~DeviceRun() {
  if (!reached_) return;
  const cuda::Scope scope(executor_.device());
  (void)(*cuda::driver())->event_destroy(reached_);
}

// ---- The caller's stream

Status DeviceRun::arrive_in(Lock& lock, cuda::StreamHandle* stream) {
  cuda::Device& device = executor_.device();
  const cuda::Driver& d = **cuda::driver();
  const cuda::Scope scope(device);
  stream_number_ = number_of_stream(device, stream);
  if (on_path_.path) return on_path_.arrive(lock, op_);
  Status put;
  if (!device.has_memory_operations()) {
    cuda::EventHandle* event = nullptr;
    lock.without([&] {
      put = cuda::check(d.event_create(&event, cuda::kEventDisableTiming), "cuEventCreate");
      if (put.ok()) put = cuda::check(d.event_record(event, stream), "cuEventRecord");
    });
    reached_ = event;
    return put;
  }
  StreamHold hold;
  lock.without([&] {
    const auto flags = device.take_flags();
    put = flags.status();
    if (!put.ok()) return;
    hold.flags = *flags;
    hold.turn = ++hold.flags->turn;
    cuda::DeferredFree::instance().stream_waits();
    put = cuda::check(
        d.stream_write_value(stream, hold.flags->address_of_ready(), hold.turn, cuda::kWriteValueDefault),
        "cuStreamWriteValue32");
  });
  if (op_.end.finished.load(std::memory_order_relaxed)) hold.release(device);
  else hold_ = std::move(hold);
  return put;
}

Status DeviceRun::wait_in(Lock& lock, cuda::StreamHandle* stream) {
  const cuda::Scope scope(executor_.device());
  if (on_path_.to_leave) return on_path_.leave(lock);
  if (!hold_.flags) return {};
  int put = cuda::kSuccess;
  lock.without([&, done = hold_.flags->address_of_done(), turn = hold_.turn] {
    put = (*cuda::driver())->stream_wait_value(stream, done, turn, cuda::kWaitValueGeq);
  });
  return cuda::check(put, "cuStreamWaitValue32");
}

void DeviceRun::follow(std::shared_ptr<StreamPath> path, std::shared_ptr<const StreamPath::Served> served) {
  on_path_.path = std::move(path);
  on_path_.served = std::move(served);
}

Status DeviceRun::OnPath::arrive(Lock& lock, const Operation& op) {
  const std::shared_ptr<StreamPath> kept = path;  // the operation may fail meanwhile
  const auto is_over = [&] { return op.end.finished.load(std::memory_order_relaxed); };
  const StreamPath::Turn turn(*kept, lock);
  if (is_over()) return {};
  // What a stream does alone waits for its peers, and the second of two ranks would stand behind the first.
  const int other =
      op.comm->on_device().board->note_stream(op.number, op.device->stream_number(), served->partners);
  if (other >= 0) return fail_on_same_stream(other);
  const auto come = kept->arrive(lock, op, served);
  if (!come) return come.status();
  epoch = *come;
  to_leave = kept;
  if (is_over()) kept->let_go(epoch);
  return {};
}

Status DeviceRun::OnPath::leave(Lock& lock) {
  const std::shared_ptr<StreamPath> kept = std::exchange(to_leave, nullptr);
  const StreamPath::Turn turn(*kept, lock);
  return kept->leave(lock, epoch);
}

std::byte* DeviceRun::OnPath::proxy_slot(int from, const transport::Envelope& envelope) const {
  const plan::Plan& plan = served->tables->plan;
  if (envelope.tag() >= plan.notifications_from(from)) return nullptr;
  const ProxyPlaces::Arrival& place = served->proxy_places->incoming[plan.wait_begin[from] + envelope.tag()];
  if (envelope.bytes != place.bytes) return nullptr;
  return place.slot +
         path->proxy()->words().slots(cuda::ProxySlots::incoming, epoch, static_cast<uint32_t>(from));
}

void DeviceRun::release_stream() {
  if (const auto path = std::exchange(on_path_.path, nullptr)) {
    const cuda::Scope scope(executor_.device());
    if (on_path_.epoch > 0) path->let_go(on_path_.epoch);
    return;
  }
  hold_.release(executor_.device());
}

Result<bool> DeviceRun::stream_is_here() {
  if (on_path_.path) return on_path_.path->has_ended(on_path_.epoch);
  if (!reached_ || hold_.come) return hold_.has_come();
  const cuda::Scope scope(executor_.device());
  const int state = (*cuda::driver())->event_query(reached_);
  if (state == cuda::kNotReady) return false;
  WEFT_TRY(cuda::check(state, "work on the caller's CUDA stream"));
  return hold_.come = true;
}

// ---- Buffers

Status DeviceRun::prepare() {
  if (on_path_.served) return {};
  const cuda::Scope scope(executor_.device());
  begun_ = true;
  const plan::Plan& plan = op_.tables->plan;
  lanes_.resize(static_cast<size_t>(plan.lanes()));
  WEFT_TRY(place_scratch());
  WEFT_TRY(place_output());
  WEFT_TRY(op_.call.scalar_is_address ? fetch_scalar() : place_input());
  return mark_before();
}

// Before the input is scaled: a kernel takes the scalar with its arguments.
Status DeviceRun::fetch_scalar() {
  const void* address = nullptr;
  static_assert(sizeof address <= sizeof op_.call.scalar);
  std::memcpy(&address, op_.call.scalar, sizeof address);
  auto block = executor_.host_blocks().take(sizeof op_.call.scalar);
  if (!block) return block.status();
  scalar_ = *block;
  before_ = Before::scalar;
  return executor_.queue(0)
      .copy(scalar_.data, address, device::size_of(op_.call.type))
      .in("an operator's scalar");
}

Status DeviceRun::mark_before() {
  if (before_ == Before::nothing) return {};
  cuda::Queue& queue = device_input_.data ? executor_.kernel_queue() : executor_.queue(0);
  auto ticket = queue.mark();
  if (!ticket) return ticket.status();
  ticket_ = ticket.take();
  return {};
}

// What peers of the node read or write has to be memory that they can map.
Result<bool> DeviceRun::must_be_staged(plan::Space space, const void* address) {
  const int index = static_cast<int>(space);
  if (!op_.tables->exposes_inside[index] || op_.memory.bytes[index] == 0) return false;
  if (!op_.comm->on_device().shares_memory) return true;
  auto place = place_of(space, address);
  if (!place) return place.status();
  return !place->shareable;
}

Result<cuda::Place> DeviceRun::place_of(plan::Space space, const void* address) {
  std::optional<cuda::Place>& known = state(space).place;
  if (known) return *known;
  auto place = cuda::locate(address);
  if (place) known = *place;
  return place;
}

Status DeviceRun::place_scratch() {
  if (op_.memory.bytes[kScratch] == 0) return {};
  spaces_[kScratch].on_device =
      executor_.kernels() && (op_.comm->on_device().shares_memory || !op_.tables->exposes_inside[kScratch]);
  cuda::BlockPool& pool = spaces_[kScratch].on_device ? executor_.device_blocks() : executor_.host_blocks();
  auto block = pool.take(op_.memory.bytes[kScratch]);
  if (!block) return block.status();
  (spaces_[kScratch].on_device ? device_scratch_ : spaces_[kScratch].staged) = *block;
  op_.memory.base[kScratch] = block->data;
  return {};
}

Status DeviceRun::place_output() {
  if (op_.memory.bytes[kOutput] == 0) return {};
  auto staged = must_be_staged(plan::Space::output, op_.memory.base[kOutput]);
  if (!staged) return staged.status();
  spaces_[kOutput].on_device = !*staged;
  if (!*staged) return {};
  auto block = executor_.host_blocks().take(op_.memory.bytes[kOutput]);
  if (!block) return block.status();
  spaces_[kOutput].staged = *block;
  staged_output_ = true;
  op_.memory.base[kOutput] = block->data;
  return {};
}

Status DeviceRun::place_input() {
  const uint64_t bytes = op_.memory.bytes[kInput];
  if (bytes == 0) return {};
  auto staged = must_be_staged(plan::Space::input, op_.memory.base[kInput]);
  if (!staged) return staged.status();
  const bool scales = op_.call.premultiply;
  const bool on_host = *staged || (scales && !executor_.kernels());
  spaces_[kInput].on_device = !on_host;
  if (on_host) {
    auto block = executor_.host_blocks().take(bytes);
    if (!block) return block.status();
    spaces_[kInput].staged = *block;
    op_.memory.base[kInput] = block->data;
    before_ = scales ? Before::scaling : Before::copies;
    return executor_.queue(0).copy(block->data, op_.call.send, bytes);
  }
  if (!scales) return {};
  auto block = executor_.device_blocks().take(bytes);
  if (!block) return block.status();
  device_input_ = *block;
  op_.memory.base[kInput] = block->data;
  before_ = Before::copies;
  return executor_.kernels()->scale(executor_.kernel_queue(), op_.call.type, block->data, op_.call.send,
                                    bytes / device::size_of(op_.call.type), op_.call.scalar);
}

std::byte* DeviceRun::landing(plan::Space space) const {
  return on_device(space) ? state(space).landing.data : op_.memory.base[static_cast<int>(space)];
}

Result<std::byte*> DeviceRun::make_landing(plan::Space space) {
  if (std::byte* there = landing(space)) return there;
  const cuda::Scope scope(executor_.device());
  const auto index = static_cast<size_t>(space);
  auto block = executor_.host_blocks().take(op_.memory.bytes[index]);
  if (!block) return block.status();
  state(space).landing = *block;
  return block->data;
}

const transport::RemoteBuffer* DeviceRun::expose_directly(transport::Transport& network, plan::Space space) {
  const auto index = static_cast<size_t>(space);
  transport::GpuDirect* const direct = op_.comm->on_device().direct;
  if (!direct || !on_device(space) || op_.memory.bytes[index] == 0 || network.gpu_direct() != direct)
    return nullptr;
  if (state(space).direct == Direct::undecided) {
    const cuda::Scope scope(executor_.device());
    auto exposed = direct->expose_gpu(op_.memory.base[index], op_.memory.bytes[index]);
    state(space).direct = exposed ? Direct::yes : Direct::no;
    if (exposed) (void)op_.exposures.add(network, space, {0, op_.memory.bytes[index]}, *exposed);
    else executor_.note_staging(exposed.status());
  }
  if (state(space).direct == Direct::no) return nullptr;
  return op_.exposures.find(network, space, {0, op_.memory.bytes[index]});
}

Result<cuda::SharedMemory> DeviceRun::share(plan::Space space) {
  std::optional<cuda::SharedMemory>& known = state(space).shared;
  if (known) return *known;
  const cuda::Scope scope(executor_.device());
  // A scaled input is in a block of the library's.
  const int index = static_cast<int>(space);
  const std::byte* const address = op_.memory.base[index];
  auto place = address == device_input_.data ? cuda::locate(address) : place_of(space, address);
  if (!place) return place.status();
  auto described = executor_.exporter().describe(*place, address, op_.memory.bytes[index],
                                                 op_.comm->on_device().shares_memory);
  if (described) known = *described;
  return described;
}

Result<bool> DeviceRun::learn(int32_t handle, uint32_t number, const cuda::SharedMemory& memory) {
  const cuda::Scope scope(executor_.device());
  auto reached = executor_.importer().reach(memory);
  if (!reached) return reached.status();
  if (!reached->address) {
    const auto in_the_way = reached->behind.lock();
    if (std::find(kept_.mappings.begin(), kept_.mappings.end(), in_the_way) != kept_.mappings.end())
      return reached->why;  // by this operation: that would never end
    postponed_.push_back({handle, number, memory, reached->behind});
    return false;
  }
  if (reached->mapping) kept_.mappings.push_back(reached->mapping);
  PeerBuffer& learned = op_.progress.learned[static_cast<size_t>(handle)];
  learned.mapped = reached->address;
  learned.on_device = true;
  return true;
}

// What can be mapped by now.
Result<bool> DeviceRun::learn_postponed() {
  bool moved = false;
  for (const Postponed& p : std::exchange(postponed_, {})) {
    if (!p.behind.expired()) {
      postponed_.push_back(p);
      continue;
    }
    auto learned = learn(p.handle, p.number, p.memory);
    if (!learned) return learned;
    op_.progress.arrived[p.number] |= *learned;
    moved |= *learned;
  }
  return moved;
}

Result<bool> DeviceRun::file(uint32_t number, const transport::Envelope& envelope, const void* payload) {
  const auto space = static_cast<plan::Space>(envelope.space);
  std::byte* const into = op_.memory.base[envelope.space] + envelope.offset;
  if (!on_device(space)) {
    if (payload) std::memcpy(into, payload, envelope.bytes);
    return true;
  }
  const cuda::Scope scope(executor_.device());
  PendingArrival arrival{number, {}};
  const std::byte* from = landing(space) ? landing(space) + envelope.offset : nullptr;
  if (payload) {
    auto block = executor_.host_blocks().take(envelope.bytes);
    if (!block) return block.status();
    arrival.block = *block;
    std::memcpy(block->data, payload, envelope.bytes);
    from = block->data;
  } else if (state(space).direct == Direct::yes) {  // written by the network itself
    WEFT_TRY(executor_.device().flush_network_writes());
    return true;
  } else if (!from) {
    return fail(Code::internal_error,
                "{} bytes came for {} in GPU memory, where nothing can arrive by itself", envelope.bytes,
                plan::name_of(space));
  }
  // Messages are short: all of them together take one event.
  cuda::Queue& queue = executor_.queue(payload ? 0 : number);
  WEFT_TRY(queue.copy(into, from, envelope.bytes));
  side_copies_.add(queue, arrival);
  return false;
}

// ---- Progress

Result<bool> DeviceRun::poll() {
  if (side_copies_.empty() && !ticket_.valid() && postponed_.empty()) return false;
  const cuda::Scope scope(executor_.device());
  bool moved = false;
  if (!postponed_.empty()) {
    auto learned = learn_postponed();
    if (!learned) return learned;
    moved = *learned;
  }
  std::vector<PendingArrival> arrived;
  const Status polled = side_copies_.poll(arrived);
  for (const PendingArrival& arrival : arrived) {
    op_.progress.arrived[arrival.number] = 1;
    executor_.host_blocks().give(arrival.block);
  }
  WEFT_TRY(polled);
  moved |= !arrived.empty();
  if (!ticket_.valid()) return moved;
  auto done = ticket_.done();
  if (!done || !*done) return done ? Result<bool>(moved) : done;
  ticket_ = cuda::Ticket();
  if (before_ == Before::scalar) {
    op_.call.scalar_is_address = false;
    std::memcpy(op_.call.scalar, scalar_.data, device::size_of(op_.call.type));
    executor_.host_blocks().give(std::exchange(scalar_, {}));
    before_ = Before::nothing;
    WEFT_TRY(place_input());
    WEFT_TRY(mark_before());
    return true;
  }
  if (before_ == Before::scaling) {
    std::byte* const input = op_.memory.base[kInput];
    device::scale(op_.call.type, input, input, op_.memory.bytes[kInput] / device::size_of(op_.call.type),
                  op_.call.scalar);
  }
  before_ = Before::nothing;
  if (after_ == After::copies) after_ = After::done;
  return true;
}

Status DeviceRun::conclude() {
  if (after_ != After::plan || (on_path_.has_proxy() && !on_path_.ended)) return {};
  after_ = After::done;
  if (!staged_output_ || op_.memory.bytes[kOutput] == 0) return {};
  const cuda::Scope scope(executor_.device());
  WEFT_TRY(executor_.queue(0).copy(op_.call.recv, op_.memory.base[kOutput], op_.memory.bytes[kOutput]));
  auto ticket = executor_.queue(0).mark();
  if (!ticket) return ticket.status();
  ticket_ = ticket.take();
  after_ = After::copies;
  return {};
}

Status DeviceRun::explain(const Status& failure) const {
  if (failure.code() != Code::unhandled_cuda_error) return failure;
  const cuda::Scope scope(executor_.device());
  const std::tuple<const char*, const void*, uint64_t> buffers[] = {
      {"sendbuff", op_.call.send, op_.memory.bytes[kInput]},
      {"recvbuff", op_.call.recv, op_.memory.bytes[kOutput]}};
  for (const auto& [name, address, bytes] : buffers) {
    if (bytes == 0) continue;
    auto place = cuda::locate(address);
    if (place && place->kind == cuda::Place::Kind::pageable)
      return fail(
          Code::invalid_pointer,
          "{} ({}) is no memory that CUDA knows any more: it was freed while the operation was using it; "
          "free it after the stream is synchronized",
          name, address);
  }
  return failure;
}

void DeviceRun::clear(LaneWork& work) {
  for (cuda::Block block : work.host) executor_.host_blocks().give(block);
  for (cuda::Block block : work.device) executor_.device_blocks().give(block);
  work.host.clear();
  work.device.clear();
  work.ticket = cuda::Ticket();
  work.phase = 0;
}

UsedMemory DeviceRun::take_memory(bool succeeded) {
  UsedMemory memory = std::exchange(kept_, {});
  const auto move = [](std::vector<cuda::Block>& from, std::vector<cuda::Block>& to) {
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
  };
  const auto take = [](cuda::Block& block, std::vector<cuda::Block>& to) {
    if (block.data) to.push_back(std::exchange(block, {}));
  };
  for (LaneWork& work : lanes_) {
    move(work.host, memory.host);
    move(work.device, memory.device);
    clear(work);
  }
  std::vector<cuda::Block> of_copies = side_copies_.clear();
  move(of_copies, memory.host);
  ticket_ = cuda::Ticket();
  take(scalar_, memory.host);
  take(device_input_, op_.tables->exposes[kInput] && !succeeded ? memory.exposed_device : memory.device);
  take(device_scratch_, op_.tables->exposes[kScratch] && !succeeded ? memory.exposed_device : memory.device);
  for (const size_t space : {kInput, kOutput, kScratch})
    for (cuda::Block* block : {&spaces_[space].staged, &spaces_[space].landing})
      take(*block, op_.tables->exposes[space] && !succeeded ? memory.exposed_host : memory.host);
  postponed_.clear();
  return memory;
}

void DeviceRun::end(bool succeeded) {
  if (on_path_.served) return;
  const cuda::Scope scope(executor_.device());
  if (!succeeded)
    if (transport::GpuDirect* direct = op_.comm->on_device().direct) direct->drop_unexposed_gpu();
  UsedMemory memory = take_memory(succeeded);
  if (succeeded || !begun_)
    return memory.give_back(executor_.host_blocks(), executor_.device_blocks(), false);
  PendingRelease release;
  release.memory = std::move(memory);
  release.stream = std::exchange(hold_, {});
  executor_.leave(std::move(release));
}

}  // namespace weft::engine
