#include "base/clock.h"

namespace weft {
namespace {

struct Instant {
  uint64_t ticks;
  int64_t ns;
};

Instant observe() { return {ticks(), now_ns()}; }

// Two instants as far apart as can be give the rate: the first is the library's loading.
const Instant kFirst = observe();

}  // namespace

int64_t ticks_to_ns(uint64_t t) {
  Instant now = observe();
  while (now.ns - kFirst.ns < 1'000'000) now = observe();  // a millisecond's baseline: better than 0.1 %
  const double ns_per_tick =
      static_cast<double>(now.ns - kFirst.ns) / static_cast<double>(now.ticks - kFirst.ticks);
  return now.ns -
         static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(now.ticks - t)) * ns_per_tick);
}

}  // namespace weft
