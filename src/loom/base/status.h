// How Status is made inside Loom: sentences by format, errno, and the one macro that returns. What Weft
// reports is turned into a Status where it is called; nothing throws across a layer.
//
// Thread safety: functions.
#pragma once

#include <fmt/format.h>

#include "loom/status.h"

namespace loom {

/// Makes an error: fail(Code::invalid_argument, "degree is {}, must divide {} ranks", p, world).
template <typename... Args>
Status fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}
/// An error of the operating system, with errno's text appended: disk_full for ENOSPC, EDQUOT and EFBIG,
/// not_found for ENOENT, out_of_memory for ENOMEM, else system_error.
Status fail_errno(int error, std::string_view what);

/// The one macro that returns: `LOOM_TRY(call());` leaves the function with the Status of a failed call.
#define LOOM_TRY(expr)                                                                             \
  do {                                                                                             \
    if (::loom::Status loom_try_status_ = (expr); !loom_try_status_.ok()) return loom_try_status_; \
  } while (0)

}  // namespace loom
