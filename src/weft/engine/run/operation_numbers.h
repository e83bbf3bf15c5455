// OperationNumbers: how a rank numbers its operations of one communicator, so that messages of ranks match
// without any agreement; and the streak in which its next collective stands.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/run/call_streak.h"
#include "engine/run/operation.h"

namespace weft::engine {

class OperationNumbers {
 public:
  /// The first collective is numbered as the one after `calls_before`.
  OperationNumbers(int rank, int size, uint32_t calls_before)
      : rank_(rank),
        last_collective_(calls_before & kCollectiveMask),
        sent_(static_cast<size_t>(size)),
        received_(static_cast<size_t>(size)) {}

  /// The number of the next collective.
  OpNumber next_collective(plan::Collective collective, int root) {
    streak_.add(collective, root);
    return last_collective_ = (last_collective_ + 1) & kCollectiveMask;
  }
  /// The number of the next transfer to or from `peer`.
  OpNumber next_transfer(bool sends, int peer) {
    const bool downward = sends ? rank_ > peer : peer > rank_;
    return kTransferBit | (downward ? kDownwardBit : 0) |
           ((sends ? sent_ : received_)[static_cast<size_t>(peer)]++ & kTransferMask);
  }
  /// The last collective; before the first one, 0.
  OpNumber last_collective() const { return last_collective_; }
  const CallStreak& streak() const { return streak_; }

 private:
  const int rank_;
  OpNumber last_collective_;
  std::vector<uint32_t> sent_, received_;  // transfers so far, by peer
  CallStreak streak_;
};

}  // namespace weft::engine
