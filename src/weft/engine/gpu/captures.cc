#include "engine/gpu/captures.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/mutex.h"
#include "device/cuda/deferred_free.h"
#include "engine/gpu/device_calls.h"
#include "engine/gpu/node_board.h"
#include "engine/gpu/stream_path.h"
#include "engine/run/signature.h"

namespace weft::engine {
namespace {

bool is_later(const Record* record, const Record* other) {
  return record && (!other || record->queued > other->queued);
}

// What sets ids of shadows apart from those of splits, whose last part is a color.
constexpr uint64_t kGraph = uint64_t{0x67726170} << 32;

// The shadow for the `number`th capture of a communicator.
std::unique_ptr<Communicator> make_shadow(Communicator& parent, uint32_t number) {
  CommOptions options = parent.options();
  options.name = fmt::format("{} graph {}", parent.name(), number);
  auto shadow = std::make_unique<Communicator>(parent.context().shared_from_this(),
                                               hash_32(kGraph, hash_32(number, parent.id())),
                                               parent.members().worlds(), std::move(options), &parent);
  const CommDevice& device = parent.on_device();
  shadow->on_device() = {device.executor, device.direct, device.shares_memory, nullptr, {}, {}, nullptr};
  return shadow;
}

/// What a graph that holds kernels keeps.
class GraphOfKernels {
 public:
  explicit GraphOfKernels(std::shared_ptr<void> kept) : kept_(std::move(kept)) {
    cuda::DeferredFree::instance().graph_begins();
  }
  ~GraphOfKernels() { cuda::DeferredFree::instance().graph_ends(); }
  GraphOfKernels(const GraphOfKernels&) = delete;
  GraphOfKernels& operator=(const GraphOfKernels&) = delete;

 private:
  const std::shared_ptr<void> kept_;
};

}  // namespace

// ---- Captures

Captures::~Captures() {
  {
    const Lock lock = parent_.context().lock();
    close();
    for (const Shadow& shadow : shadows_)
      if (shadow.path && !shadow.graph.expired()) shadow.path->outlive(shadow.graph);
  }
  dispose(shadows_);
}

bool Captures::Shadow::in_use() const {
  return !comm->operations().unfinished().empty() ||
         std::any_of(calls.begin(), calls.end(), [](const auto& held) { return !held.expired(); }) ||
         !graph.expired() || (path && path->ended() < path->begun());
}

Captures::Shadow* Captures::find(uint64_t capture) {
  const auto found = std::find_if(shadows_.begin(), shadows_.end(),
                                  [=](const Shadow& shadow) { return shadow.capture == capture; });
  return found == shadows_.end() ? nullptr : &*found;
}

// Shadows whose graphs are destroyed.
std::list<Captures::Shadow> Captures::take_unused() {
  const Lock lock = parent_.context().lock();
  check();
  std::list<Shadow> unused;
  for (auto shadow = shadows_.begin(); shadow != shadows_.end();) {
    const auto next = std::next(shadow);
    if (!shadow->in_use()) {
      of_old_shadows_ += shadow->comm->recorder().total() + (shadow->path ? shadow->path->ended() : 0);
      if (const Record* last = shadow->comm->recorder().latest(); is_later(last, latest_of_old_shadows()))
        latest_of_old_shadows_ = *last;
      unused.splice(unused.end(), shadows_, shadow);
    }
    shadow = next;
  }
  return unused;
}

void Captures::dispose(std::list<Shadow>& unused) {
  if (unused.empty()) return;
  const cuda::Scope scope(parent_.on_device().executor->device());
  {
    const Lock lock = parent_.context().lock();
    for (Shadow& shadow : unused) shadow.path.reset();
  }
  for (Shadow& shadow : unused)
    if (shadow.last) (void)(*cuda::driver())->event_destroy(shadow.last);
  unused.clear();
}

Result<Captures::Shadow*> Captures::find_or_make(uint64_t capture) {
  if (Shadow* const known = find(capture)) return known;
  std::list<Shadow> unused = take_unused();
  dispose(unused);
  auto made = make_shadow(parent_, ++captures_);
  Lock lock = parent_.context().lock();
  std::shared_ptr<StreamPath> path;
  for (const auto& of_parent : parent_.on_device().paths) {
    auto own = of_parent->for_capture(lock, captures_);
    if (!own) {  // peers may have counted this capture, and later ones would not match
      parent_.fail(own.status().in(made->name()), true);
      return own.status();
    }
    if (!path) path = own.take();
  }
  shadows_.push_back({capture, captures_, std::move(made), nullptr, {}, std::move(path), {}, 0, 0});
  if (!parent_.failure().ok()) return parent_.failure();
  return &shadows_.back();
}

Result<std::shared_ptr<CapturedCalls>> Captures::hold(const cuda::Capture& capture) {
  const MutexLock guard(mutex_);
  const Result<Shadow*> shadow = find_or_make(capture.id);
  if (!shadow) return shadow.status();
  auto calls = CapturedCalls::create(*(*shadow)->comm);
  if (!calls) return calls.status();
  const Lock lock = parent_.context().lock();
  (*shadow)->calls.push_back(*calls);
  return calls.take();
}

// Kernels of a capture follow each other, whatever their streams: they count the same epochs.
Status Captures::follow_last(Shadow& shadow, cuda::StreamHandle* stream) {
  const cuda::Driver& d = **cuda::driver();
  if (shadow.last) return cuda::check(d.stream_wait_event(stream, shadow.last, 0), "cuStreamWaitEvent");
  return cuda::check(d.event_create(&shadow.last, cuda::kEventDisableTiming), "cuEventCreate");
}

// A kernel of the graph sends no message, and its packets carry nothing of the call.
Status Captures::compare(Shadow& shadow, const StreamPath::StreamCall& call,
                         const StreamPath::Served& served) {
  const cuda::Device& device = parent_.on_device().executor->device();
  shadow.history = hash_32(call.signature, shadow.history);
  const auto others = parent_.on_device().board->note_captured(
      shadow.number, ++shadow.kernels, shadow.history, number_of_stream(device, call.call.cuda_stream),
      served.partners);
  if (others.differing >= 0)
    return weft::fail(Code::mismatch,
                      "{} of {} {} is call {} of the capture, and rank {} has captured another call there or "
                      "before: capture the same calls in the same order on all ranks",
                      plan::name_of(call.call.collective), call.call.count, device::name_of(call.call.type),
                      shadow.kernels, others.differing);
  return others.on_same_stream < 0 ? Status() : fail_on_same_stream(others.on_same_stream);
}

Status Captures::keep_with(const cuda::Capture& capture, Shadow& shadow) {
  if (!shadow.graph.expired()) return {};
  const auto graph = std::make_shared<GraphOfKernels>(shadow.path->kept_by_graphs());
  shadow.graph = graph;
  return cuda::keep_with(capture.graph, graph);
}

Result<bool> Captures::capture_on_path(const cuda::Capture& capture, const Call& call) {
  if (plan::is_transfer(call.collective)) return false;
  const MutexLock guard(mutex_);
  const cuda::Scope scope(parent_.on_device().executor->device());
  const Result<Shadow*> found = find_or_make(capture.id);
  if (!found) return found.status();
  Shadow& shadow = **found;
  Lock lock = parent_.context().lock();
  check();
  if (!parent_.failure().ok()) return parent_.failure();
  if (!shadow.path) return false;
  auto served = find_on_path(parent_, *shadow.path, call);
  if (!served) return false;
  auto* const stream = static_cast<cuda::StreamHandle*>(call.cuda_stream);
  const CommOptions& options = parent_.options();
  const StreamPath::StreamCall stream_call{call, call.timeout_s > 0 ? call.timeout_s : options.timeout_s,
                                           options.strict, signature_of(call, *served->tables)};
  if (Status same = compare(shadow, stream_call, *served).in(shadow.comm->name()); !same) {
    parent_.fail(same, true);
    return same;
  }
  Status followed;
  lock.without([&] {
    followed = keep_with(capture, shadow);
    if (followed.ok()) followed = follow_last(shadow, stream);
  });
  WEFT_TRY(followed);
  WEFT_TRY(shadow.path->capture(lock, stream_call, served));
  algorithm_on_path_ = served->tables->plan.algorithm;
  lock.without(
      [&] { followed = cuda::check((*cuda::driver())->event_record(shadow.last, stream), "cuEventRecord"); });
  WEFT_TRY(followed);
  return true;
}

Status Captures::arrive(CapturedCalls& calls, const cuda::Capture& capture, cuda::StreamHandle* stream) {
  const MutexLock guard(mutex_);
  Shadow& shadow = *find(capture.id);
  WEFT_TRY(follow_last(shadow, stream));
  WEFT_TRY(calls.arrive_in(stream, capture.graph));
  return cuda::check((*cuda::driver())->event_record(shadow.last, stream), "cuEventRecord");
}

void Captures::fail() {
  for (Shadow& shadow : shadows_) {
    shadow.comm->fail_as_shadow();
    if (shadow.path) shadow.path->stop();
  }
}

Operation* Captures::unfinished() const {
  for (const Shadow& shadow : shadows_)
    if (!shadow.comm->operations().unfinished().empty()) return shadow.comm->operations().unfinished().back();
  return nullptr;
}

bool Captures::path_under_way() const {
  return std::any_of(shadows_.begin(), shadows_.end(), [](const Shadow& shadow) {
    return shadow.path && shadow.path->ended() < shadow.path->begun();
  });
}

void Captures::check() {
  for (const Shadow& shadow : shadows_) {
    if (!parent_.failure().ok()) return;
    if (!shadow.path) continue;
    if (const Status ended = shadow.path->has_ended(0).status(); !ended)
      parent_.fail(ended.in(shadow.comm->name()), true);
  }
}

void Captures::close() {
  for (Shadow& shadow : shadows_)
    if (shadow.path) shadow.path->stop();
  for (Shadow& shadow : shadows_)
    for (const auto& held : shadow.calls)
      if (const auto calls = held.lock()) calls->close();
}

uint64_t Captures::operations() const {
  uint64_t ended = of_old_shadows_;
  for (const Shadow& shadow : shadows_)
    ended += shadow.comm->recorder().total() - shadow.comm->operations().unfinished().size() +
             (shadow.path ? shadow.path->ended() : 0);
  return ended;
}

const Record* Captures::latest() const {
  const Record* latest = latest_of_old_shadows();
  for (const Shadow& shadow : shadows_)
    if (const Record* of_lane = shadow.comm->recorder().latest(); is_later(of_lane, latest)) latest = of_lane;
  return latest;
}

std::vector<const Communicator*> Captures::shadows() const {
  std::vector<const Communicator*> all;
  for (const Shadow& shadow : shadows_) all.push_back(shadow.comm.get());
  return all;
}

// ---- CapturedGroup

Status CapturedGroup::add(Communicator& comm, const cuda::Capture& capture, const Call& call,
                          std::shared_ptr<const PlanTables> tables) {
  auto* const stream = static_cast<cuda::StreamHandle*>(call.cuda_stream);
  auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& known) {
    return known.comm == &comm && known.stream == stream && known.capture.id == capture.id;
  });
  if (part == parts_.end()) {
    const cuda::Scope scope(comm.on_device().executor->device());
    auto calls = comm.captures()->hold(capture);
    if (!calls) return calls.status();
    part = parts_.insert(part, {&comm, capture, stream, calls.take()});
  }
  part->calls->add(call, std::move(tables));
  return {};
}

Status CapturedGroup::arrive() {
  Status first_failure;
  for (auto part = parts_.begin(); part != parts_.end();) {
    const cuda::Scope scope(part->comm->on_device().executor->device());
    const Status arrived = part->comm->captures()->arrive(*part->calls, part->capture, part->stream);
    if (arrived.ok()) {
      ++part;
      continue;
    }
    part->calls->close();
    if (first_failure.ok()) first_failure = arrived;
    part = parts_.erase(part);
  }
  return first_failure;
}

Status CapturedGroup::wait() {
  Status first_failure;
  for (Part& part : parts_) {
    const cuda::Scope scope(part.comm->on_device().executor->device());
    const Status waits = part.calls->wait_in(part.stream);
    if (waits.ok()) continue;
    part.calls->close();
    if (first_failure.ok()) first_failure = waits;
  }
  return first_failure;
}

}  // namespace weft::engine
