// OperationHealth: what keeps an operation from getting on, as far as its own rank knows. Failures looks at
// it a few times a second.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <utility>

#include "base/status.h"

namespace weft::engine {

struct OperationHealth {
  int64_t next_check_ns = 0;     // when to ask peers what holds the operation up
  int32_t mismatched = -1;       // a rank whose message did not fit: the verdict is that the calls differ
  bool verdict_pending = false;  // an inquiry about the operation runs or waits for its turn
  bool unreachable = false;      // a peer or its memory could not be reached: no step is tried any more
  Status why_unreachable;        // until Failures has the report

  /// A step could not reach its peer.
  void set_unreachable(Status why) {
    unreachable = true;
    why_unreachable = std::move(why);
  }
  /// As new, for the next call.
  void renew() {
    next_check_ns = 0;
    mismatched = -1;
    verdict_pending = unreachable = false;
  }
};

}  // namespace weft::engine
