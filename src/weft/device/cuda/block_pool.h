// BlockPool: the library's own memory for operations on a device, in blocks of powers of two. A block is
// device memory, or pinned host memory, which is window memory too, so that peers of the node can map it. The
// pool keeps and reuses blocks, since both kinds are slow to allocate.
//
// Thread safety: none; a thread that uses it is inside a Scope of its device.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/status.h"
#include "device/cuda/deferred_free.h"
#include "device/cuda/device.h"

namespace weft::device::cuda {

struct Block {
  std::byte* data = nullptr;
  int size_class = -1;
};

class BlockPool {
 public:
  using Kind = BlockKind;

  BlockPool(Device& device, Kind kind) : device_(device), kind_(kind) {}
  /// The owner has given all blocks back, or nothing uses them any more.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// At least `bytes` bytes, 64-byte aligned, uninitialised. Errors: out_of_memory, unhandled_cuda_error.
  Result<Block> take(size_t bytes);
  /// An empty block is allowed. Calls nothing of CUDA: see deferred_free.h.
  void give(Block block);
  /// The same for a block that a peer may still read or write, because the peer does not know yet that the
  /// operation has failed. Nobody gets it as long as the pool exists, nor from another pool after that.
  void retire(Block block);

 private:
  static constexpr int kSmallest = 12;  // 4 KiB
  static constexpr int kSlab = 20;      // smaller blocks are pieces of 1 MiB

  Result<std::byte*> acquire(size_t bytes);
  void release(std::byte* data, size_t bytes, DeferredFree::Lending lending = DeferredFree::Lending::allowed);

  Device& device_;
  const Kind kind_;
  std::array<std::vector<std::byte*>, 48> free_;
  std::vector<std::byte*> slabs_;
  std::vector<Block> retired_;
  size_t kept_bytes_ = 0;  // in free large blocks; beyond WEFT_CUDA_KEEP_BYTES they are given back
};

}  // namespace weft::device::cuda
