// HandedOver: how much goes between the caches of a rank and its node-mates in one operation, which decides
// how fast it goes (mapped_rate()).
//
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace weft::model {

struct HandedOver {
  uint64_t scratch_bytes = 0;  // of node-mates' scratch, written or read
  uint64_t output_bytes = 0;   // of their outputs, which they have just written, read

  /// What is used in turn has not left the other's cache like what is used once: pieces that take turns in
  /// 1 MiB are handed over as fast as a third of it at once.
  static constexpr uint64_t kTakenSooner = 3;
};

HandedOver handed_over(const plan::Plan& plan, const topology::Layout& layout);

}  // namespace weft::model
