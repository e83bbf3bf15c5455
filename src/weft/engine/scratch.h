// ScratchPool: the library's own memory for operations in flight, in windows that peers of the node can map.
// Blocks are kept and reused by power-of-two size, so that a steady job touches no new page.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/status.h"

namespace weft::engine {

class ScratchPool {
 public:
  ScratchPool() = default;
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  struct Block {
    std::byte* data = nullptr;
    int size_class = -1;
  };
  /// At least `bytes` bytes, 64-byte aligned, uninitialised.
  Result<Block> take(size_t bytes);
  void give(Block block);
  /// The same for one that a peer may still write to, which has not heard yet that the operation failed: lent
  /// to nobody else as long as the pool exists.
  void retire(Block block);

 private:
  static constexpr int kSmallest = 12;                // 4 KiB
  static constexpr size_t kKeptBytes = 256ull << 20;  // beyond this, blocks go back to the system
  std::array<std::vector<std::byte*>, 48> free_;
  size_t kept_bytes_ = 0;
  std::vector<std::byte*> retired_;
};

}  // namespace weft::engine
