// OperationHealth: why an operation makes no progress, as far as its own rank knows. Failures reads it every
// 100 ms.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <utility>

#include "base/status.h"

namespace weft::engine {

struct OperationHealth {
  int64_t next_check_ns = 0;     // when to ask peers what holds the operation up
  int32_t mismatched = -1;       // a rank whose message belongs to a different call; -1: none
  bool verdict_pending = false;  // an inquiry about the operation runs or waits
  bool unreachable = false;      // a peer or its memory could not be reached; no further step is tried
  Status why_unreachable;        // valid until Failures takes the report

  /// A step could not reach its peer.
  void set_unreachable(Status why) {
    unreachable = true;
    why_unreachable = std::move(why);
  }
  /// Resets the state for the next call.
  void renew() {
    next_check_ns = 0;
    mismatched = -1;
    verdict_pending = unreachable = false;
  }
};

}  // namespace weft::engine
