#include "engine/run/windows.h"

#include <limits>
#include <optional>
#include <utility>

#include "engine/context/context.h"
#include "engine/run/communicator.h"
#include "engine/run/gather_words.h"

namespace weft::engine {
namespace {

/// What a rank says in a registration in place of its size: its transports cannot reach the buffer.
constexpr uint64_t kUnreachable = std::numeric_limits<uint64_t>::max();

/// The notification by which a wait's operation learns that its `i`th signals have come.
uint32_t notification_of(const plan::Plan& plan, size_t i) {
  const plan::Step& step = plan.steps[i];
  return plan.wait_begin[static_cast<size_t>(step.peer)] + step.tag;
}

}  // namespace

// ---- Windows

const Window* Windows::find(uint32_t number) const {
  const auto found = open_.find(number);
  return found == open_.end() ? nullptr : &found->second;
}

void Windows::close(uint32_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  if (found->second.registration) comm_.buffers().registrations.remove(found->second.registration);
  open_.erase(found);
  comm_.context().window_traffic().closed();
}

void Windows::clear() {
  while (!open_.empty()) close(open_.begin()->first);
  noted_.clear();
  comm_.context().window_traffic().forget(*this);
}

Result<uint32_t> open_window(Communicator& comm, void* base, uint64_t bytes) {
  Context& context = comm.context();
  Lock lock = context.lock();
  Windows& windows = comm.buffers().windows;
  const uint32_t number = ++windows.last_;
  Window& own = windows.open_[number];
  context.window_traffic().opened();
  own.base = static_cast<std::byte*>(base);
  own.bytes = bytes;
  Result<void*> registered = nullptr;
  if (bytes > 0)
    registered = comm.buffers().registrations.add(base, bytes, comm.on_device().executor != nullptr);
  if (registered) own.registration = *registered;

  const auto sizes = words_of(comm, registered ? bytes : kUnreachable);
  const Result<Operation*> gathering = gather_words(comm, sizes, Purpose::window);
  Status gathered = gathering ? end_gathering(lock, comm, *gathering) : gathering.status();
  for (int rank = 0; gathered.ok() && rank < comm.size(); ++rank)
    if ((*sizes)[static_cast<size_t>(rank)] == kUnreachable)
      gathered = rank == comm.rank()
                     ? registered.status()
                     : fail(Code::system_error, "rank {} could not register its part of the window", rank);
  if (!gathered.ok()) {
    windows.close(number);
    return gathered;
  }
  own.sizes.assign(sizes->begin(), sizes->end() - 1);
  context.waiting().wake_progress();  // it listens from now on
  return number;
}

// ---- Calls

// A wait has a lane for each entry, so that an inquiry learns of all peers that have sent nothing.
const std::shared_ptr<const PlanTables>* Windows::make_plan(const Call& call) {
  if (call.purpose == Purpose::put) {
    made_ = comm_.plans().make_self_copy(call);
    return &made_;
  }
  plan::Builder builder("signals", comm_.plans().request_for(call), comm_.size(), comm_.rank());
  uint32_t tag = 0;
  for (const AwaitedSignals& awaited : call.one_sided->awaited)
    builder.wait(builder.new_lane(), awaited.peer, tag++);
  made_ = PlanTables::make(builder.finish(), comm_.members().layout());
  return &made_;
}

std::shared_ptr<const OneSided> Windows::claimed(const Call& call) {
  if (call.purpose != Purpose::wait) return call.one_sided;
  auto claimed = std::make_shared<OneSided>(*call.one_sided);
  for (AwaitedSignals& awaited : claimed->awaited) signals_.claim(awaited);
  return claimed;
}

// ---- Operations

void Windows::began(Operation& op) {
  if (op.call.purpose == Purpose::wait) look_for_signals(op);
  else if (!op.progress.put_sequence) op.progress.put_sequence = signals_.next_to(op.call.root);
}

void Windows::look_for_signals(Operation& op) const {
  const std::vector<AwaitedSignals>& awaited = op.call.one_sided->awaited;
  for (size_t i = 0; i < awaited.size(); ++i)
    if (signals_.have_come(awaited[i])) op.progress.arrived[notification_of(op.tables->plan, i)] = 1;
}

void Windows::ended(const Operation& op) {
  const Call& call = op.call;
  if (call.purpose != Purpose::put || call.collective == plan::Collective::send) return;
  const OneSided& put = *call.one_sided;
  if (signals_.ended(call.root, *op.progress.put_sequence,
                     put.signals ? std::optional(put.signal) : std::nullopt))
    tell_waiting();
}

void Windows::tell_waiting() {
  for (Operation* op : comm_.operations().unfinished()) {
    if (op->call.purpose != Purpose::wait || !op->started) continue;
    look_for_signals(*op);
    op->progress.may_move = true;
  }
}

std::string Windows::missing(const Operation& op) const {
  std::string text;
  for (const AwaitedSignals& awaited : op.call.one_sided->awaited) {
    const uint64_t missing = std::min(signals_.missing(awaited), awaited.count);
    if (missing == 0) continue;
    text += fmt::format("{}rank {} has sent {} of {} signals", text.empty() ? "" : "; ", awaited.peer,
                        awaited.count - missing, awaited.count);
    if (awaited.name != SignalName())
      text += fmt::format(" (sigIdx {}, ctx {})", awaited.name.index, awaited.name.context);
  }
  return text;
}

// ---- Announcements

PutAnnouncement Windows::announcement_of(const Operation& op) const {
  const OneSided& put = *op.call.one_sided;
  return {.offset = put.offset,
          .count = op.call.count,
          .window = put.window,
          .sequence = *op.progress.put_sequence,
          .signal_index = put.signal.index,
          .signal_context = put.signal.context,
          .type = static_cast<uint32_t>(op.call.type),
          .signals = put.signals};
}

void Windows::note(int from, OpNumber number, const PutAnnouncement& announcement) {
  noted_.push_back({from, number, announcement});
  comm_.context().window_traffic().note(*this);
}

void Windows::begin_noted() {
  for (const Noted& noted : std::exchange(noted_, {}))
    if (comm_.failure().ok())
      if (const Status begun = begin(noted); !begun.ok()) comm_.fail(begun, true);
}

// The receive that matches the put; its first message waits in the stash.
Status Windows::begin(const Noted& noted) {
  const PutAnnouncement& what = noted.what;
  if (what.type >= device::kDataTypes)
    return fail(Code::protocol_error, "rank {} announced a put of elements of unknown type {}", noted.from,
                what.type);
  Call call;
  call.collective = plan::Collective::recv;
  call.count = what.count;
  call.type = static_cast<device::DataType>(what.type);
  call.root = noted.from;
  call.purpose = Purpose::put;
  call.on_device = comm_.on_device().executor != nullptr;
  if (what.count > 0) {
    const Window* const window = find(what.window);
    if (!window)
      return fail(Code::invalid_usage,
                  "rank {} put {} elements into a window that rank {} has deregistered: deregister a window "
                  "after the last put into it has been waited for",
                  noted.from, what.count, comm_.rank());
    const uint64_t element = device::size_of(call.type);
    if (what.offset > window->bytes || what.count > (window->bytes - what.offset) / element)
      return fail(Code::protocol_error, "rank {} put {} elements of {} bytes at {} into a window of {} bytes",
                  noted.from, what.count, element, what.offset, window->bytes);
    call.recv = window->base + what.offset;
  }
  auto put = std::make_shared<OneSided>();
  put->window = what.window;
  put->offset = what.offset;
  put->signals = what.signals != 0;
  put->signal = {what.signal_index, what.signal_context};
  put->number = noted.number;
  put->sequence = what.sequence;
  call.one_sided = std::move(put);
  const Result<Operation*> op = comm_.begin(call, nullptr);
  if (op) comm_.context().operations().release(*op);
  return op.status();
}

}  // namespace weft::engine
