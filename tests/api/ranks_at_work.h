// Whether ranks run as threads of this process now. Device memory that one of them no longer needs is not
// freed meanwhile: a driver may let a free wait for every stream of the device, and another rank's may be
// waiting for the operation that the freeing one is to call next.
#pragma once

#include <atomic>

namespace weft::testing {

class RanksAtWork {
 public:
  RanksAtWork() { ++count_; }
  ~RanksAtWork() { --count_; }
  RanksAtWork(const RanksAtWork&) = delete;
  RanksAtWork& operator=(const RanksAtWork&) = delete;

  static bool any() { return count_ > 0; }

 private:
  static inline std::atomic<int> count_{0};
};

}  // namespace weft::testing
