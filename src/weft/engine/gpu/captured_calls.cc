#include "engine/gpu/captured_calls.h"

#include <atomic>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "device/cuda/deferred_free.h"
#include "engine/gpu/device_calls.h"
#include "engine/gpu/device_executor.h"
#include "engine/run/communicator.h"

namespace weft::engine {

Result<std::shared_ptr<CapturedCalls>> CapturedCalls::create(Communicator& shadow) {
  cuda::Device& device = shadow.on_device().executor->device();
  auto flags = device.take_flags();
  if (!flags) return flags.status();
  return std::shared_ptr<CapturedCalls>(new CapturedCalls(shadow, device, **flags));
}

CapturedCalls::CapturedCalls(Communicator& shadow, cuda::Device& device, cuda::Device::Flags& flags)
    : device_(device), flags_(flags), turn_(++flags.turn), shadow_(&shadow) {
  cuda::DeferredFree::instance().graph_begins();
}

// Nothing of the graph is left, and `ready` was never given to a stream.
CapturedCalls::~CapturedCalls() {
  device_.give_flags(&flags_);
  stop_counting();
}

void CapturedCalls::add(const Call& call, std::shared_ptr<const PlanTables> tables) {
  calls_.push_back({call, std::move(tables)});
}

Status CapturedCalls::arrive_in(cuda::StreamHandle* stream, cuda::GraphHandle* graph) {
  WEFT_TRY(cuda::keep_with(graph, shared_from_this()));
  return cuda::check((*cuda::driver())
                         ->launch_host_function(
                             stream, [](void* calls) { static_cast<CapturedCalls*>(calls)->arrive(); }, this),
                     "cuLaunchHostFunc");
}

Status CapturedCalls::wait_in(cuda::StreamHandle* stream) {
  return cuda::check(
      (*cuda::driver())->stream_wait_value(stream, flags_.address_of_done(), turn_, cuda::kWaitValueGeq),
      "cuStreamWaitValue32");
}

void CapturedCalls::arrive() {
  const MutexLock guard(mutex_);
  if (!shadow_) {
    if (!std::exchange(told_, true))
      log::warn(
          "a CUDA graph is launched whose operations were captured on a communicator that is finalized or "
          "gone: they are left out");
    if (unfinished_ == 0) let_stream_go();
    return;
  }
  std::atomic_ref(flags_.done).store(turn_ - 1, std::memory_order_release);
  unfinished_ += calls_.size();
  shadow_->context().submit(shared_from_this());
}

void CapturedCalls::start() {
  Communicator* shadow = nullptr;
  {
    const MutexLock guard(mutex_);
    shadow = shadow_;
  }
  if (!shadow) return;
  for (const PlannedCall& planned : calls_) run_captured(*shadow, planned, shared_from_this());
}

void CapturedCalls::linger() {
  const MutexLock guard(mutex_);
  ++lingering_;
}

void CapturedCalls::ended(bool lingered) {
  const MutexLock guard(mutex_);
  if (lingered) --lingering_;
  if (unfinished_ > 0 && --unfinished_ == 0) let_stream_go();
}

void CapturedCalls::close() {
  const MutexLock guard(mutex_);
  shadow_ = nullptr;
  unfinished_ = lingering_;
  if (unfinished_ == 0) let_stream_go();
}

void CapturedCalls::let_stream_go() {
  std::atomic_ref(flags_.done).store(turn_, std::memory_order_release);
  if (!shadow_) stop_counting();
}

// A graph whose calls are closed makes no stream wait any more.
void CapturedCalls::stop_counting() {
  if (std::exchange(counts_, false)) cuda::DeferredFree::instance().graph_ends();
}

}  // namespace weft::engine
