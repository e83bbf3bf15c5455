#include "engine/run/scratch.h"

#include <algorithm>
#include <bit>

#include "base/log.h"
#include "device/window.h"

namespace weft::engine {
namespace {

void free_block(std::byte* block) {
  if (Status freed = device::window_free(block); !freed) log::error("scratch: {}", freed.message());
}

}  // namespace

ScratchPool::~ScratchPool() {
  for (auto& blocks : free_)
    for (const Kept& block : blocks) free_block(block.data);
  empty_retired(INT64_MAX);
  for (const Retired& retired : retired_)
    if (Status freed = device::window_retire(retired.block.data); !freed)
      log::error("scratch: {}", freed.message());
}

Result<ScratchPool::Block> ScratchPool::take(size_t bytes) {
  const int size_class = bytes <= (size_t{1} << kSmallest) ? kSmallest : std::bit_width(bytes - 1);
  auto& blocks = free_[size_class];
  if (!blocks.empty()) {
    std::byte* data = blocks.back().data;
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
  while (kept_bytes_ > 0 && kept_bytes_ + bytes > kKeptBytes) forget_oldest();
  free_[block.size_class].push_back({block.data, ++given_});
  kept_bytes_ += bytes;
}

void ScratchPool::forget_oldest() {
  const auto age = [](const std::vector<Kept>& blocks) {
    return blocks.empty() ? UINT64_MAX : blocks.front().since;
  };
  auto& blocks = *std::min_element(free_.begin(), free_.end(),
                                   [&](const auto& a, const auto& b) { return age(a) < age(b); });
  free_block(blocks.front().data);
  blocks.erase(blocks.begin());
  kept_bytes_ -= size_t{1} << (&blocks - free_.data());
}

void ScratchPool::retire(Block block, int64_t now_ns) { retired_.push_back({block, now_ns}); }

void ScratchPool::empty_retired(int64_t until_ns) {
  for (; holds_retired() && retired_[emptied_].at_ns <= until_ns; ++emptied_)
    if (Status emptied = device::window_discard(retired_[emptied_].block.data); !emptied)
      log::error("scratch: {}", emptied.message());
}

}  // namespace weft::engine
