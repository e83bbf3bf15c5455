#include "engine/scratch.h"

#include <bit>

#include "base/log.h"
#include "device/window.h"

namespace weft::engine {

ScratchPool::~ScratchPool() {
  for (auto& blocks : free_)
    for (std::byte* block : blocks)
      if (Status freed = device::window_free(block); !freed) log::error("scratch: {}", freed.message());
}

Result<ScratchPool::Block> ScratchPool::take(size_t bytes) {
  const int size_class = bytes <= (size_t{1} << kSmallest) ? kSmallest : std::bit_width(bytes - 1);
  auto& blocks = free_[size_class];
  if (!blocks.empty()) {
    std::byte* data = blocks.back();
    blocks.pop_back();
    kept_bytes_ -= size_t{1} << size_class;
    return Block{data, size_class};
  }
  auto fresh = device::window_alloc(size_t{1} << size_class);
  if (!fresh) return fresh.status();
  return Block{static_cast<std::byte*>(*fresh), size_class};
}

void ScratchPool::give(Block block) {
  if (!block.data) return;
  const size_t bytes = size_t{1} << block.size_class;
  if (kept_bytes_ + bytes > kKeptBytes) {
    if (Status freed = device::window_free(block.data); !freed) log::error("scratch: {}", freed.message());
    return;
  }
  free_[block.size_class].push_back(block.data);
  kept_bytes_ += bytes;
}

}  // namespace weft::engine
