#include "base/status.h"

#include <cerrno>
#include <cstring>

namespace loom {
namespace {

Code code_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return Code::disk_full;
    case ENOENT: return Code::not_found;
    case ENOMEM: return Code::out_of_memory;
    default: return Code::system_error;
  }
}

}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::ok: return "success";
    case Code::invalid_argument: return "invalid argument";
    case Code::invalid_data: return "invalid data";
    case Code::not_found: return "not found";
    case Code::system_error: return "system error";
    case Code::disk_full: return "disk full";
    case Code::out_of_memory: return "out of memory";
    case Code::communication_error: return "communication error";
    case Code::not_finite: return "not a finite number";
    case Code::unsupported: return "unsupported";
    case Code::internal_error: return "internal error";
  }
  return "unknown code";
}

const std::string& Status::message() const {
  static const std::string none;
  return state_ ? state_->message : none;
}

Status Status::in(std::string_view where) const {
  return ok() ? *this : Status(code(), fmt::format("{}: {}", where, message()));
}

Status fail_errno(int error, std::string_view what) {
  return fail(code_of(error), "{}: {} (errno {})", what, std::strerror(error), error);
}

}  // namespace loom
