// Chance: an endpoint's random numbers. The same seed gives the same numbers.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "settings.h"

namespace weft::fake_efa {

class Chance {
 public:
  explicit Chance(uint64_t stream) : random_(settings().seed * 0x9e3779b97f4a7c15ull + stream) {}

  uint64_t number() { return random_(); }
  /// In [0, bound).
  uint64_t below(uint64_t bound) { return random_() % bound; }
  bool happens(int percent) { return static_cast<int>(below(100)) < percent; }
  template <typename T>
  void shuffle(std::vector<T>& things) {
    if (!settings().in_order) std::shuffle(things.begin(), things.end(), random_);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace weft::fake_efa
