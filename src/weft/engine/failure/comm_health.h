// CommHealth: whether a communicator works, and the failure that ended it. The first failure stays. A rank
// that fails reports why and leaves; that it has left is only the consequence. So a report that is known
// takes the place of the message that the rank is gone.
//
// Thread safety: none; under the context's lock.
#pragma once

#include "base/status.h"

namespace weft::engine {

class CommHealth {
 public:
  bool ok() const { return failure_.ok(); }
  /// ok, or the first failure.
  const Status& failure() const { return failure_; }
  /// Takes in a failure; false if there was one already. `reported` is what another rank has reported of this
  /// communicator, ok: nothing.
  bool fail(const Status& why, const Status& reported) {
    if (!ok()) return false;
    by_report_ = why.code() == Code::remote_error && !reported.ok();
    failure_ = by_report_ ? reported : why;
    return true;
  }
  /// Whether the failure is the report of another rank, so that all ranks know it.
  bool by_report() const { return by_report_; }

 private:
  Status failure_;
  bool by_report_ = false;
};

}  // namespace weft::engine
