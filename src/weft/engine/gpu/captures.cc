#include "engine/gpu/captures.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"

namespace weft::engine {
namespace {

bool is_later(const Record* record, const Record* other) {
  return record && (!other || record->queued > other->queued);
}

}  // namespace

// ---- Captures

Captures::~Captures() {
  {
    const Lock lock = parent_.context().lock();
    close();
  }
  dispose(lanes_);
}

bool Captures::Lane::in_use() const {
  return !comm->operations().empty() ||
         std::any_of(calls.begin(), calls.end(), [](const auto& held) { return !held.expired(); });
}

Captures::Lane* Captures::find(uint64_t capture) {
  const auto found =
      std::find_if(lanes_.begin(), lanes_.end(), [=](const Lane& lane) { return lane.capture == capture; });
  return found == lanes_.end() ? nullptr : &*found;
}

// Lanes whose graphs are destroyed.
std::list<Captures::Lane> Captures::take_unused() {
  const Lock lock = parent_.context().lock();
  std::list<Lane> unused;
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    const auto next = std::next(lane);
    if (!lane->in_use()) {
      of_old_lanes_ += lane->comm->recorder().total();
      if (const Record* last = lane->comm->recorder().latest(); is_later(last, latest_of_old_lanes()))
        latest_of_old_lanes_ = *last;
      unused.splice(unused.end(), lanes_, lane);
    }
    lane = next;
  }
  return unused;
}

void Captures::dispose(std::list<Lane>& unused) {
  if (unused.empty()) return;
  const cuda::Scope scope(parent_.on_device().executor->device());
  for (Lane& lane : unused)
    if (lane.last) (void)(*cuda::driver())->event_destroy(lane.last);
  unused.clear();
}

Result<std::shared_ptr<CapturedCalls>> Captures::hold(const cuda::Capture& capture) {
  const MutexLock guard(mutex_);
  Lane* lane = find(capture.id);
  if (!lane) {
    std::list<Lane> unused = take_unused();
    dispose(unused);
    auto made = parent_.make_lane(++captures_);
    const Lock lock = parent_.context().lock();
    lanes_.push_back({capture.id, std::move(made), nullptr, {}});
    lane = &lanes_.back();
    if (!parent_.failure().ok()) return parent_.failure();
  }
  auto calls = CapturedCalls::create(*lane->comm);
  if (!calls) return calls.status();
  const Lock lock = parent_.context().lock();
  lane->calls.push_back(*calls);
  return calls.take();
}

Status Captures::arrive(CapturedCalls& calls, const cuda::Capture& capture, cuda::StreamHandle* stream) {
  const MutexLock guard(mutex_);
  const cuda::Driver& d = **cuda::driver();
  Lane& lane = *find(capture.id);
  if (lane.last) WEFT_TRY(cuda::check(d.stream_wait_event(stream, lane.last, 0), "cuStreamWaitEvent"));
  else WEFT_TRY(cuda::check(d.event_create(&lane.last, cuda::kEventDisableTiming), "cuEventCreate"));
  WEFT_TRY(calls.arrive_in(stream, capture.graph));
  return cuda::check(d.event_record(lane.last, stream), "cuEventRecord");
}

void Captures::fail() {
  for (Lane& lane : lanes_) lane.comm->fail_as_lane();
}

Operation* Captures::unfinished() const {
  for (const Lane& lane : lanes_)
    if (!lane.comm->operations().empty()) return lane.comm->operations().back();
  return nullptr;
}

void Captures::close() {
  for (Lane& lane : lanes_)
    for (const auto& held : lane.calls)
      if (const auto calls = held.lock()) calls->close();
}

uint64_t Captures::operations() const {
  uint64_t ended = of_old_lanes_;
  for (const Lane& lane : lanes_) ended += lane.comm->recorder().total() - lane.comm->operations().size();
  return ended;
}

const Record* Captures::latest() const {
  const Record* latest = latest_of_old_lanes();
  for (const Lane& lane : lanes_)
    if (const Record* of_lane = lane.comm->recorder().latest(); is_later(of_lane, latest)) latest = of_lane;
  return latest;
}

std::vector<const Communicator*> Captures::lanes() const {
  std::vector<const Communicator*> all;
  for (const Lane& lane : lanes_) all.push_back(lane.comm.get());
  return all;
}

// ---- CapturedGroup

Status CapturedGroup::add(Communicator& comm, const cuda::Capture& capture, const Call& call,
                          std::shared_ptr<const Prepared> prepared) {
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
  part->calls->add(call, std::move(prepared));
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
