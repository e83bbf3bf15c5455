// OperationHealth: what keeps an operation from getting on, as far as its own rank knows. Failures looks at
// it a few times a second.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "engine/failure/grace.h"

namespace weft::engine {

struct OperationHealth {
  int64_t next_check_ns = 0;     // when to ask peers what holds the operation up
  int32_t mismatched = -1;       // a rank whose message did not fit: the verdict is that the calls differ
  bool verdict_pending = false;  // an inquiry about the operation runs or waits for its turn
  bool unreachable = false;      // a peer or its memory could not be reached; then the next two say more
  Status why_unreachable;
  Grace grace;

  /// A step could not reach its peer. No step is tried any more. The operation fails with `why` after the
  /// time of grace, unless a better reason is heard.
  void set_unreachable(Status why, int64_t now_ns) {
    unreachable = true;
    why_unreachable = std::move(why);
    grace = Grace(now_ns);
  }
  /// As new, for the next call.
  void renew() {
    next_check_ns = 0;
    mismatched = -1;
    verdict_pending = unreachable = false;
  }
};

}  // namespace weft::engine
