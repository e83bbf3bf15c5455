#include "engine/gpu/pending_release.h"

#include <atomic>
#include <utility>

#include "base/log.h"
#include "device/cuda/deferred_free.h"
#include "engine/gpu/captured_calls.h"
#include "engine/gpu/stream_path.h"

namespace weft::engine {

bool StreamHold::has_come() {
  if (come || !flags) return come;
  const uint32_t ready = std::atomic_ref(flags->ready).load(std::memory_order_acquire);
  return come = static_cast<int32_t>(ready - turn) >= 0;
}

void StreamHold::linger() {
  lingers = true;
  if (calls) calls->linger();
}

void StreamHold::release(cuda::Device& device) {
  if (const auto captured = std::exchange(calls, nullptr)) captured->ended(lingers);
  if (!flags) return;
  // A stream that has not written `ready` yet still will: those flags are not used again.
  const bool reusable = has_come();
  std::atomic_ref(flags->done).store(turn, std::memory_order_release);
  if (reusable) device.give_flags(flags);
  flags = nullptr;
  cuda::DeferredFree::instance().stream_goes_on();
}

void UsedMemory::give_back(cuda::BlockPool& host_pool, cuda::BlockPool& device_pool, bool retire) {
  const auto put = [](cuda::BlockPool& pool, std::vector<cuda::Block>& blocks, bool retired) {
    for (const cuda::Block& block : std::exchange(blocks, {}))
      retired ? pool.retire(block) : pool.give(block);
  };
  put(host_pool, host, retire);
  put(device_pool, device, retire);
  put(host_pool, exposed_host, true);
  put(device_pool, exposed_device, true);
  mappings.clear();
  other.reset();
}

bool PendingRelease::over() {
  while (!tickets.empty()) {
    const auto done = tickets.back().done();
    if (done && !*done) return false;
    if (!done) {
      unknown = true;
      log::trace("work of a failed operation: {}", done.status().message());
    }
    tickets.pop_back();
  }
  return !path || path->is_drained();
}

}  // namespace weft::engine
