// CallRow: how long a row of collectives that are alike, of the same kind from the same root, may be expected
// to go on. Ranks of one that is from or to a root need not wait for each other, and the same algorithm is
// seldom the best for one call and for many (model/tuner.h: choose()).
//
// Nobody is told how many will come. A row is expected to go on for as long as it has lasted, which grows in
// steps; so what one call costs more by the first algorithm is paid a few times, and what another costs more
// alone when the row ends is little beside it. All ranks call collectives in the same order, so all expect
// the same.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <cstdint>
#include <iterator>

#include "plan/plan.h"

namespace weft::engine {

class CallRow {
 public:
  /// What expected() may say. Each is four times the one before, as each costs a plan.
  static constexpr int kLengths[] = {1, 4, 16, 64, 256, 1024, 4096};
  /// How many calls the row may have in which such a call would be the next.
  int expected(plan::Collective collective, int root) const {
    if (!goes_on(collective, root)) return 1;
    return left_ == 0 ? grown() : expected_;
  }

  /// Such a call is made.
  void add(plan::Collective collective, int root) {
    if (!goes_on(collective, root)) {
      collective_ = collective;
      root_ = root;
      begin(1);
    } else if (left_ == 0) {
      begin(grown());
    }
    --left_;
  }

 private:
  static constexpr int kStep = kLengths[1], kMost = std::end(kLengths)[-1];

  bool goes_on(plan::Collective collective, int root) const {
    return expected_ > 0 && collective == collective_ && root == root_;
  }
  bool grows() const { return plan::has_root(collective_) && expected_ < kMost; }
  int grown() const { return grows() ? expected_ * kStep : expected_; }
  /// So many are expected, and as many have been, or none.
  void begin(int expected) {
    const int past = expected > 1 ? expected : 0;
    expected_ = expected;
    left_ = grows() ? static_cast<uint32_t>(expected * kStep - past) : UINT32_MAX;
  }

  plan::Collective collective_ = plan::Collective::all_reduce;
  int root_ = 0;
  int expected_ = 0;   // 0: no call yet
  uint32_t left_ = 0;  // calls until another number is expected
};

}  // namespace weft::engine
