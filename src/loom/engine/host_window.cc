// Parts side by side in one piece of pinned memory.
#include "engine/host_window.h"

#include <cstdlib>
#include <cstring>

#include "base/round.h"

namespace loom::engine {

Status HostWindow::open(RankDevice& device, std::span<const Part> parts) {
  device_ = &device;
  if (!device.on_gpu()) return {};
  constexpr int64_t kAlign = device::kMemoryAlignment;
  const auto aligned = [](int64_t bytes) { return round_up(bytes, kAlign); };
  int64_t bytes = 0;
  for (const Part& part : parts) bytes += aligned(part.bytes);
  Result<device::Memory> memory = device.device().allocate_pinned(bytes);
  LOOM_TRY(memory.status());
  memory_ = memory.take();
  std::memset(memory_.data(), 0, static_cast<size_t>(bytes));
  std::byte* next = memory_.data();
  for (const Part& part : parts) {
    parts_.push_back({part.there, next, part.bytes});
    next += aligned(part.bytes);
  }
  return {};
}

std::byte* HostWindow::find(const std::byte* there) const {
  if (parts_.empty()) return const_cast<std::byte*>(there);
  for (const Copy& part : parts_)
    if (there >= part.there && there < part.there + part.bytes) return part.here + (there - part.there);
  std::abort();  // the engine asks for an address that it did not open
}

void HostWindow::upload(const void* there, int64_t bytes) {
  if (parts_.empty()) return;
  auto* const to = static_cast<std::byte*>(const_cast<void*>(there));
  device_->queue().copy(to, here(to), bytes);
}

void HostWindow::download(const void* there, int64_t bytes) {
  if (parts_.empty()) return;
  const auto* const from = static_cast<const std::byte*>(there);
  device_->queue().copy(find(from), from, bytes);
}

}  // namespace loom::engine
