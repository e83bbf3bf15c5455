// Random: numbers that follow from a seed alone, alike on every machine and in every process.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace soak {

/// A hash of several numbers (splitmix64).
inline uint64_t mix(std::initializer_list<uint64_t> numbers) {
  uint64_t hash = 0;
  for (const uint64_t number : numbers) {
    hash += number + 0x9e3779b97f4a7c15;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash;
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() { return mix({state_++}); }
  /// In [0, count).
  int below(int count) { return static_cast<int>(next() % static_cast<uint64_t>(count)); }
  /// In [least, most].
  int between(int least, int most) { return least + below(most - least + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace soak
