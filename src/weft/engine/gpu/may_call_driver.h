// MayCallDriver: which operations on GPU memory may have to ask the driver for memory, or to map a peer's
// memory. Pools lend blocks by powers of two. So these are the first operation on an allocation, and the
// first one of its collective and size class. It does not find blocks that two operations need at once, nor
// a graph's launch.
//
// While the driver loads a kernel or frees memory for the program it waits for all streams, and keeps such
// questions waiting too. A stream that waits for an operation which has to ask would then wait for ever
// (docs/explanation/gpus.md, "While a stream waits").
//
// Thread safety: none; under the context's lock.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_set>

#include "plan/plan.h"

namespace weft::engine {

class MayCallDriver {
 public:
  /// Whether an operation on `bytes` bytes of the allocations `buffers` is such a one; remembers it. 0: no
  /// buffer, or one that peers never map.
  bool note(plan::Collective collective, uint64_t bytes, const std::array<uint64_t, 2>& buffers);

 private:
  static constexpr size_t kRemembered = 4096;  // allocations; more than a program has at a time

  std::unordered_set<uint64_t> buffers_;
  std::array<uint64_t, plan::kCollectives> classes_{};  // a bit for each power of two
};

}  // namespace weft::engine
