// HandedOver: how many bytes go between the caches of a rank and its local peers in one operation. Their
// number decides their rate (mapped_rate()).
//
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace weft::model {

struct HandedOver {
  uint64_t scratch_bytes = 0;  // of local peers' scratch, written or read
  uint64_t output_bytes = 0;   // of their outputs, which they have just written, read

  /// Memory that is used again and again stays in the other rank's cache longer: pieces that take turns in 1
  /// MiB have the rate of a third of it used once.
  static constexpr uint64_t kTakenSooner = 3;
};

HandedOver handed_over(const plan::Plan& plan, const topology::Layout& layout);

}  // namespace weft::model
