// CommOperations: the operations of one communicator: how its rank numbers them, so that messages of ranks
// match without any agreement; which have not ended; and the streak in which the next collective stands.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/run/call_streak.h"
#include "engine/run/operation.h"

namespace weft::engine {

/// How many transfers a rank has called with one peer, by the direction of their data: to the higher rank of
/// the two, and to the lower one.
struct Transfers {
  uint32_t upward = 0, downward = 0;

  bool any() const { return upward > 0 || downward > 0; }
  /// Whether the transfer of this number is not among them.
  bool lack(OpNumber number) const {
    return ((number - (number & kDownwardBit ? downward : upward)) & kTransferMask) < kTransferMask / 2;
  }
};

class CommOperations {
 public:
  /// The first collective is numbered as the one after `calls_before`.
  CommOperations(int rank, int size, uint32_t calls_before)
      : rank_(rank),
        last_collective_(calls_before & kCollectiveMask),
        transfers_(static_cast<size_t>(size)),
        put_(static_cast<size_t>(size)) {}

  /// The number of the next collective.
  OpNumber next_collective(plan::Collective collective, int root) {
    streak_.add(collective, root);
    return last_collective_ = (last_collective_ + 1) & kCollectiveMask;
  }
  /// The number of the next transfer to or from `peer`.
  OpNumber next_transfer(bool sends, int peer) {
    const bool downward = sends ? rank_ > peer : peer > rank_;
    Transfers& transfers = transfers_[static_cast<size_t>(peer)];
    return downward ? kTransferBit | kDownwardBit | (transfers.downward++ & kTransferMask)
                    : kTransferBit | (transfers.upward++ & kTransferMask);
  }
  /// The number of the next put to `peer`.
  OpNumber next_put(int peer) {
    return kTransferBit | (rank_ > peer ? kDownwardBit : 0) | kPutBit |
           (put_[static_cast<size_t>(peer)]++ & kTransferMask);
  }
  /// The number of the next communicator that is split or shrunk from this one, for its id. Ranks that make
  /// children in the same order give them the same numbers.
  uint32_t next_split() { return ++splits_; }
  uint32_t next_shrunk() { return ++shrunk_; }
  /// The last collective; before the first one, 0.
  OpNumber last_collective() const { return last_collective_; }
  const Transfers& transfers(int peer) const { return transfers_[static_cast<size_t>(peer)]; }
  const CallStreak& streak() const { return streak_; }

  /// Everything that was asked for and has not ended, queued or active.
  const std::vector<Operation*>& unfinished() const { return unfinished_; }
  void add(Operation& op) {
    op.comm_index = static_cast<uint32_t>(unfinished_.size());
    unfinished_.push_back(&op);
  }
  void remove(Operation& op) {
    unfinished_[op.comm_index] = unfinished_.back();
    unfinished_[op.comm_index]->comm_index = op.comm_index;
    unfinished_.pop_back();
  }
  /// Whether a collective was called here and is over.
  bool has_ended(OpNumber number) const {
    if ((number & kTransferBit) || comes_after(number, last_collective_)) return false;
    return std::none_of(unfinished_.begin(), unfinished_.end(),
                        [=](const Operation* op) { return op->number == number; });
  }

 private:
  const int rank_;
  OpNumber last_collective_;
  std::vector<Transfers> transfers_;  // by peer
  std::vector<uint32_t> put_;         // puts so far, by peer
  uint32_t splits_ = 0, shrunk_ = 0;  // communicators made so far
  CallStreak streak_;
  std::vector<Operation*> unfinished_;
};

}  // namespace weft::engine
