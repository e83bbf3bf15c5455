#include "device/cuda/deferred_free.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "device/window.h"

namespace weft::device::cuda {

// Never destroyed: its thread and progress threads may still use it while the process exits.
DeferredFree& DeferredFree::instance() {
  static auto* const deferred = new DeferredFree;
  return *deferred;
}

void DeferredFree::stream_waits() {
  const MutexLock guard(quiet_mutex_);
  waiting_.fetch_add(1);
}

// The thread looks at the items after every ring. So either the thread sees that no stream waits any more, or
// this call sees the items.
void DeferredFree::stream_goes_on() {
  if (waiting_.fetch_sub(1) == 1 && items_.load() > 0) ring();
}

void DeferredFree::graph_begins() {
  {
    const MutexLock guard(mutex_);
    start_thread();  // not at the graph's end
  }
  stream_waits();
}

void DeferredFree::add_block(Device& device, BlockKind kind, std::byte* block, size_t bytes,
                             Lending lending) {
  {
    const MutexLock guard(mutex_);
    start_thread();
    blocks_.push_back({&device, kind, lending, block, bytes, {}});
    items_.fetch_add(1);
  }
  ring();
}

void DeferredFree::add_segment(Device& device, Segment segment) {
  const auto kept = std::make_shared<const Segment>(std::move(segment));
  {
    const MutexLock guard(mutex_);
    start_thread();
    blocks_.push_back({&device, BlockKind::host, Lending::forbidden, kept->data(), kept->bytes(), kept});
    items_.fetch_add(1);
  }
  ring();
}

void DeferredFree::add_mapping(Device& device, DevicePointer base) {
  {
    const MutexLock guard(mutex_);
    start_thread();
    mappings_.push_back({&device, base});
    items_.fetch_add(1);
  }
  ring();
}

std::byte* DeferredFree::take_block(const Device& device, BlockKind kind, size_t bytes) {
  const MutexLock guard(mutex_);
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    return block.device == &device && block.kind == kind && block.bytes == bytes &&
           block.lending == Lending::allowed;
  });
  if (found == blocks_.end()) return nullptr;
  std::byte* const data = found->data;
  blocks_.erase(found);
  items_.fetch_sub(1);
  return data;
}

std::optional<std::weak_ptr<void>> DeferredFree::close_mappings() {
  std::weak_ptr<void> until;
  {
    const MutexLock guard(mutex_);
    if (mappings_.empty() && !closing_) return std::nullopt;
    if (!close_all_) close_all_ = std::make_shared<char>();
    until = close_all_;
  }
  ring();
  return until;
}

// ---- The thread that gives back

void DeferredFree::start_thread() {
  if (std::exchange(started_, true)) return;
  std::thread([this] {
    name_thread("weft-deferred");
    for (uint32_t seen = rings_.load();; seen = rings_.load()) {
      give_back();
      rings_.wait(seen);
    }
  }).detach();
}

void DeferredFree::ring() {
  rings_.fetch_add(1);
  rings_.notify_one();
}

void DeferredFree::give_back() {
  while (close_one_too_many() || give_one_in_quiet()) {
  }
}

bool DeferredFree::close_one_too_many() {
  const auto mapping = take_mapping(kMostMappings);
  if (mapping) close(*mapping);
  return mapping.has_value();
}

bool DeferredFree::give_one_in_quiet() {
  const MutexLock quiet(quiet_mutex_);
  if (waiting_.load() > 0) return false;
  if (const auto mapping = take_mapping(0)) {
    close(*mapping);
    return true;
  }
  MutexLock lock(mutex_);
  if (blocks_.empty()) return false;
  const Block block = blocks_.front();
  blocks_.pop_front();
  items_.fetch_sub(1);
  lock.unlock();
  give(block);
  return true;
}

/// The oldest one, if there are more than `keep`, or all have to go; close() has to follow.
std::optional<DeferredFree::Mapping> DeferredFree::take_mapping(size_t keep) {
  const MutexLock guard(mutex_);
  if (mappings_.size() <= (close_all_ ? 0 : keep)) return std::nullopt;
  const Mapping mapping = mappings_.front();
  mappings_.pop_front();
  items_.fetch_sub(1);
  closing_ = true;
  return mapping;
}

void DeferredFree::close(const Mapping& mapping) {
  {
    const Scope scope(*mapping.device);
    const Status closed =
        check((*driver())->ipc_close_mem_handle(mapping.base), "a peer's memory (cuIpcCloseMemHandle)");
    if (!closed.ok()) log::trace("giving back: {}", closed.message());
  }
  const MutexLock guard(mutex_);
  closing_ = false;
  if (mappings_.empty()) close_all_.reset();
}

void DeferredFree::give(const Block& block) {
  const Scope scope(*block.device);
  const Driver& d = **driver();
  const bool on_device = block.kind == BlockKind::device;
  const int freed =
      on_device ? d.mem_free(reinterpret_cast<uintptr_t>(block.data)) : d.mem_host_unregister(block.data);
  if (freed != kSuccess && freed != kDeinitialized)  // the process exits, and CUDA has gone before
    log::warn("giving back memory of an operation: {}",
              check(freed, on_device ? "cuMemFree" : "cuMemHostUnregister").message());
  if (block.kind == BlockKind::host && !block.segment)
    if (Status gone = window_free(block.data); !gone) log::error("window: {}", gone.message());
}

}  // namespace weft::device::cuda
