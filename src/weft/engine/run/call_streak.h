// CallStreak: back-to-back collectives that are alike, of the same kind from the same root, and how many
// more of them are expected. Ranks of a collective that is from or to a root need not wait for each other,
// and the same algorithm is seldom the best for one call and for many (model/tuner.h: choose()).
//
// No call says how many will come. A streak is expected to go on for twice as long as it has lasted. The
// expectation changes at a few lengths only, since each change costs a plan. So the first algorithm's
// higher cost is paid a few times, and the second's higher latency, where the streak ends, is little beside
// the streak. All ranks call collectives in the same order, so all expect the same.
//
// Another algorithm adds in another order. So nothing is expected of reductions that round: the same call has
// the same bits wherever it stands.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <cstdint>
#include <iterator>

#include "engine/run/call.h"
#include "plan/plan.h"

namespace weft::engine {

class CallStreak {
 public:
  /// After how many calls it is looked at again how many will follow. Each is four times the one before, as
  /// each costs a plan.
  static constexpr int kPast[] = {4, 16, 64, 256, 1024, 4096};
  /// How many calls a streak goes on for after so many.
  static constexpr int more(int past) { return past == 0 ? 1 : 2 * past; }

  /// How many calls the streak may have in which this call would be the next.
  int expected(const Call& call) const {
    return goes_on(call.collective, call.root) && !rounds(call) ? expected_ : more(0);
  }

  /// Such a call is made.
  void add(plan::Collective collective, int root) {
    if (!goes_on(collective, root)) {
      begun_ = true;
      collective_ = collective;
      root_ = root;
      begin(0);
    } else if (left_ == 0) {
      begin(next_past());
    }
    if (--left_ == 0) expected_ = more(next_past());
  }

 private:
  static constexpr int kFirst = kPast[0], kStep = kPast[1] / kPast[0], kLast = std::end(kPast)[-1];

  static bool rounds(const Call& call) {
    const bool adds = call.op == device::ReduceOp::sum || call.op == device::ReduceOp::prod ||
                      call.op == device::ReduceOp::avg;
    return plan::reduces(call.collective) && adds && !device::is_integer(call.type);
  }
  bool goes_on(plan::Collective collective, int root) const {
    return begun_ && collective == collective_ && root == root_;
  }
  bool grows() const { return plan::has_root(collective_) && past_ < kLast; }
  int next_past() const { return !grows() ? past_ : past_ == 0 ? kFirst : past_ * kStep; }
  /// So many calls have been.
  void begin(int past) {
    past_ = past;
    left_ = grows() ? static_cast<uint32_t>(next_past() - past) : UINT32_MAX;
    expected_ = more(past);
  }

  plan::Collective collective_ = plan::Collective::all_reduce;
  int root_ = 0;
  bool begun_ = false;
  int past_ = 0;       // calls, when it was looked at
  uint32_t left_ = 0;  // calls until it is again
  int expected_ = 1;   // calls that the streak may have, as of the next one
};

}  // namespace weft::engine
