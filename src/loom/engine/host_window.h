// HostWindow: what the host reads and writes of a rank's arena: tokens and targets and what it derives of
// them, losses, sums of squares, and what ranks tell each other. On CPUs it is the arena's own memory, and
// nothing is copied. On a GPU it is pinned memory of the host, as large as those parts of the arena. What the
// host wrote is copied to the arena before the first operator that reads it, and the host waits once a step
// for what it reads.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/rank_device.h"

namespace loom::engine {

class HostWindow {
 public:
  /// A part of the arena.
  struct Part {
    std::byte* there = nullptr;
    int64_t bytes = 0;
  };

  /// All bytes are zeros on a GPU. `device` outlives it. Errors: out_of_memory.
  Status open(RankDevice& device, std::span<const Part> parts);

  /// Where the host has an address of one of the parts.
  template <typename E>
  E* here(E* there) const {
    return reinterpret_cast<E*>(find(reinterpret_cast<const std::byte*>(there)));
  }
  /// Queues a copy of what the host has to the arena. The host leaves it alone until wait().
  void upload(const void* there, int64_t bytes);
  /// Queues a copy to the host, which reads it after wait().
  void download(const void* there, int64_t bytes);
  /// Returns when all that was queued before is done, operators too. Errors: theirs.
  Status wait() { return device_->queue().drain(); }

 private:
  struct Copy {
    std::byte* there;
    std::byte* here;
    int64_t bytes;
  };
  std::byte* find(const std::byte* there) const;

  RankDevice* device_ = nullptr;
  device::Memory memory_;
  std::vector<Copy> parts_;  // none on CPUs
};

}  // namespace loom::engine
