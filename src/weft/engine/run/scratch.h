// ScratchPool: the library's own memory for operations in flight, in windows that peers of the node can map.
// Blocks are kept and reused by power-of-two size, so that a steady job touches no new page. The pool keeps
// up to 256 MiB, or one longer block. It frees the blocks first that have not been used for longest.
//
// Blocks of failed operations are different. A stopped peer, or a network that has accepted parts of a put,
// may access them at any later time, and no rank can know when that ends. So the pool never lends them
// again, and keeps them mapped as long as it exists: a late access meets an address that nothing else uses.
// It does free their memory. So a failure costs address space (and a large block a descriptor), but no
// memory.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
  void retire(Block block, int64_t now_ns);
  /// Whether retired blocks still have their memory.
  bool holds_retired() const { return emptied_ < retired_.size(); }
  /// Gives back the memory of what was retired by then; its bytes read as zero afterwards.
  void empty_retired(int64_t until_ns);

 private:
  static constexpr int kSmallest = 12;  // 4 KiB
  static constexpr size_t kKeptBytes = 256ull << 20;
  struct Kept {
    std::byte* data;
    uint64_t since;  // in the order in which they came back
  };
  void forget_oldest();

  std::array<std::vector<Kept>, 48> free_;  // by size class, the oldest first
  size_t kept_bytes_ = 0;
  uint64_t given_ = 0;
  struct Retired {
    Block block;
    int64_t at_ns;
  };
  std::vector<Retired> retired_;  // in the order of time
  size_t emptied_ = 0;            // how many of them, from the first on, have given their memory back
};

}  // namespace weft::engine
