// CommHealth: whether a communicator works, and the failure that ended it. The first failure stays. A rank
// that fails reports the reason, and then leaves. So the reason replaces the message that the rank is gone,
// if the report has arrived.
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
  /// Records a failure. False if one is recorded already. `reported`: the failure that another rank has
  /// reported of this communicator; ok if none has.
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
