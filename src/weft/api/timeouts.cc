#include "api/timeouts.h"

#include <algorithm>

#include "api/handles.h"

namespace weft::api {

thread_local double t_call_timeout_s = 0;

}  // namespace weft::api

using namespace weft;
using namespace weft::api;

weftResult_t weftCommSetTimeout(weftComm_t comm, double timeoutSeconds) {
  const InUse in_use(comm);
  auto found = usable(comm);
  if (!found) return report(found.status().in(__func__), comm);
  if (!(timeoutSeconds > 0))
    return report(fail(Code::invalid_argument, "timeoutSeconds is {}, must be greater than 0", timeoutSeconds)
                      .in(__func__),
                  comm);
  (*found)->set_timeout(std::min(timeoutSeconds, kLongestTimeout_s));
  return weftSuccess;
}

weftResult_t weftSetCallTimeout(double timeoutSeconds) {
  if (!(timeoutSeconds >= 0))
    return report(fail(Code::invalid_argument,
                       "timeoutSeconds is {}, must be greater than 0, or 0 for the communicators' own",
                       timeoutSeconds)
                      .in(__func__));
  t_call_timeout_s = std::min(timeoutSeconds, kLongestTimeout_s);
  return weftSuccess;
}
