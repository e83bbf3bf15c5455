#include "device/cuda/block_pool.h"

#include <algorithm>
#include <bit>

#include "base/settings.h"
#include "device/window.h"

namespace weft::device::cuda {

BlockPool::~BlockPool() {
  for (size_t size_class = kSlab; size_class < free_.size(); ++size_class)
    for (std::byte* block : free_[size_class]) release(block, size_t{1} << size_class);
  auto slabs = DeferredFree::Lending::allowed;
  for (const Block& block : retired_)
    if (block.size_class < kSlab) slabs = DeferredFree::Lending::forbidden;  // a piece of one of them
    else release(block.data, size_t{1} << block.size_class, DeferredFree::Lending::forbidden);
  for (std::byte* slab : slabs_) release(slab, size_t{1} << kSlab, slabs);
}

Result<Block> BlockPool::take(size_t bytes) {
  const int size_class =
      std::max(kSmallest, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)));
  if (size_class >= static_cast<int>(free_.size()))
    return fail(Code::out_of_memory, "{} bytes are more than any device has", bytes);
  auto& blocks = free_[size_class];
  if (blocks.empty()) {
    const int acquired_class = std::max(size_class, kSlab);
    auto fresh = acquire(size_t{1} << acquired_class);
    if (!fresh) return fresh.status();
    if (size_class >= kSlab) return Block{*fresh, size_class};
    slabs_.push_back(*fresh);
    for (size_t at = 0; at < size_t{1} << kSlab; at += size_t{1} << size_class) blocks.push_back(*fresh + at);
  } else if (size_class >= kSlab) {
    kept_bytes_ -= size_t{1} << size_class;
  }
  std::byte* const data = blocks.back();
  blocks.pop_back();
  return Block{data, size_class};
}

void BlockPool::give(Block block) {
  if (!block.data) return;
  const size_t bytes = size_t{1} << block.size_class;
  if (block.size_class >= kSlab) {
    if (kept_bytes_ + bytes > static_cast<size_t>(settings().cuda_keep_bytes))
      return release(block.data, bytes);
    kept_bytes_ += bytes;
  }
  free_[block.size_class].push_back(block.data);
}

void BlockPool::retire(Block block) {
  if (block.data) retired_.push_back(block);
}

Result<std::byte*> BlockPool::acquire(size_t bytes) {
  if (std::byte* const again = DeferredFree::instance().take_block(device_, kind_, bytes)) return again;
  const Driver& d = **driver();
  if (kind_ == Kind::device) {
    DevicePointer pointer = 0;
    WEFT_TRY(check(d.mem_alloc(&pointer, bytes), fmt::format("{} bytes of GPU memory (cuMemAlloc)", bytes)));
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer));
  }
  // From 1 MiB on a window has pages of its own, which is what can be pinned.
  auto window = window_alloc(bytes);
  if (!window) return window.status();
  Status pinned = check(d.mem_host_register(*window, bytes, kHostRegisterPortable | kHostRegisterMapped),
                        fmt::format("pinning {} bytes of host memory (cuMemHostRegister)", bytes));
  if (!pinned) {
    (void)window_free(*window);
    return pinned;
  }
  return static_cast<std::byte*>(*window);
}

void BlockPool::release(std::byte* data, size_t bytes, DeferredFree::Lending lending) {
  DeferredFree::instance().add_block(device_, kind_, data, bytes, lending);
}

}  // namespace weft::device::cuda
