#include "device/cuda/surplus.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/window.h"

namespace weft::device::cuda {

// Never destroyed: progress threads may still use it while the process exits.
Surplus& Surplus::instance() {
  static auto* const surplus = new Surplus;
  return *surplus;
}

void Surplus::stream_waits() {
  const std::lock_guard guard(mutex_);
  ++waiting_;
}

void Surplus::stream_goes_on() {
  const std::lock_guard guard(mutex_);
  --waiting_;
  give_back_if_quiet();
}

void Surplus::graph_begins() { stream_waits(); }

void Surplus::graph_ends() {
  const std::lock_guard guard(mutex_);
  --waiting_;
}

void Surplus::add_block(Device& device, BlockKind kind, std::byte* block, size_t bytes) {
  const std::lock_guard guard(mutex_);
  blocks_.push_back({&device, kind, block, bytes});
  give_back_if_quiet();
}

void Surplus::add_mapping(Device& device, DevicePointer base) {
  const std::lock_guard guard(mutex_);
  mappings_.push_back({&device, base});
  give_back_if_quiet();
}

std::byte* Surplus::take_block(const Device& device, BlockKind kind, size_t bytes) {
  const std::lock_guard guard(mutex_);
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    return block.device == &device && block.kind == kind && block.bytes == bytes;
  });
  if (found == blocks_.end()) return nullptr;
  std::byte* const data = found->data;
  blocks_.erase(found);
  return data;
}

void Surplus::close_mappings() {
  const std::lock_guard guard(mutex_);
  close_all_mappings();
}

void Surplus::close_all_mappings() {
  for (const Mapping& mapping : std::exchange(mappings_, {})) {
    const Scope scope(*mapping.device);
    const Status closed =
        check((*driver())->ipc_close_mem_handle(mapping.base), "a peer's memory (cuIpcCloseMemHandle)");
    if (!closed.ok()) log::trace("giving back: {}", closed.message());
  }
}

void Surplus::give_back_if_quiet() {
  if (waiting_ > 0) return;
  close_all_mappings();
  for (const Block& block : std::exchange(blocks_, {})) {
    const Scope scope(*block.device);
    const Driver& d = **driver();
    const Status freed = block.kind == BlockKind::device
                             ? check(d.mem_free(reinterpret_cast<uintptr_t>(block.data)), "cuMemFree")
                             : check(d.mem_host_unregister(block.data), "cuMemHostUnregister");
    if (!freed.ok()) log::warn("giving back memory of an operation: {}", freed.message());
    if (block.kind == BlockKind::host)
      if (Status gone = window_free(block.data); !gone) log::error("window: {}", gone.message());
  }
}

}  // namespace weft::device::cuda
