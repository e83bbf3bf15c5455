// Late: things that are held back for a random number of turns, and come out in a random order. A turn is a
// poll of the endpoint. A clock bounds the time, since a rank that sleeps polls seldom.
//
// Thread safety: none.
#pragma once

#include <time.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "chance.h"

namespace weft::fake_efa {

inline int64_t now_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

template <typename T>
class Late {
 public:
  size_t size() const { return held_.size(); }
  bool empty() const { return held_.empty(); }
  void clear() { held_.clear(); }

  /// `slowness`: 1 for the fastest rail; others hold things back for so many times longer.
  void add(T thing, Chance& chance, int slowness) {
    if (settings().in_order) return held_.push_back({std::move(thing), 0, INT64_MAX});
    const uint64_t kind = chance.below(100);
    uint64_t turns = 0;
    if (kind == 0) turns = 100 + chance.below(300);
    else if (kind < 10) turns = 8 + chance.below(24);
    else if (kind < 60) turns = 1 + chance.below(7);
    const int64_t longest = settings().hold_us * (kind == 0 ? 10 : 1) * slowness;
    held_.push_back({std::move(thing), static_cast<int64_t>(turns) * slowness,
                     longest > 0 ? now_us() + longest : INT64_MAX});
  }

  /// A turn: calls `take` with each thing whose time has come. What `take` refuses (false) is tried again at
  /// the next turn. `take` may add things.
  template <typename Take>
  void turn(Chance& chance, Take take) {
    if (held_.empty()) return;
    const int64_t now = settings().in_order ? 0 : now_us();
    std::vector<Held> due, kept;
    for (Held& held : held_)
      (--held.turns < 0 || held.until_us <= now ? due : kept).push_back(std::move(held));
    held_.swap(kept);
    chance.shuffle(due);
    std::vector<Held> refused;
    for (Held& held : due)
      if (!take(held.thing)) refused.push_back(std::move(held));
    held_.insert(held_.begin(), std::make_move_iterator(refused.begin()),
                 std::make_move_iterator(refused.end()));
  }

 private:
  struct Held {
    T thing;
    int64_t turns;
    int64_t until_us;
  };
  std::vector<Held> held_;
};

}  // namespace weft::fake_efa
