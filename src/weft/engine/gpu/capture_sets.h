// CaptureSets: which set of control memory (plan_memory.h) each capture of a communicator has. The ranks of
// the node agree on it by their board, without a message: the first rank that comes to a capture chooses a
// set that is as new. A set becomes so again in two steps:
//   1. Every rank's graph of the capture is destroyed. Each rank notes that.
//   2. At its next capture, each rank clears its own part of the set, and notes that, too.
// So nobody clears memory that a kernel of a peer may use, and no flag of an older capture is left.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/gpu/node_board.h"

namespace weft::engine {

/// A set, and the capture that has it. Set 0 is no capture's.
struct SetOfCapture {
  uint32_t set = 0, capture = 0;
};

class CaptureSets {
 public:
  /// Sets 1 to `sets`.
  CaptureSets(std::shared_ptr<NodeBoard> board, uint32_t sets)
      : board_(std::move(board)), capture_of_(sets + 1) {}

  /// The set of the `capture`th capture, whose predecessors have been found; the same on all ranks. 0: none
  /// is as new. `clear` clears this rank's part of a set. Errors: those of `clear`, and of
  /// NodeBoard::agree_on_set().
  Result<uint32_t> find(uint32_t capture, const std::function<Status(uint32_t set)>& clear);

 private:
  const std::shared_ptr<NodeBoard> board_;
  std::vector<uint32_t> capture_of_;  // by set: the last that had it; 0: none
};

}  // namespace weft::engine
