#include "base/status.h"

#include <cstring>

namespace weft {

const char* code_name(Code code) {
  switch (code) {
    case Code::ok: return "success";
    case Code::unhandled_cuda_error: return "unhandled CUDA error";
    case Code::system_error: return "system error";
    case Code::internal_error: return "internal error";
    case Code::invalid_argument: return "invalid argument";
    case Code::invalid_usage: return "invalid usage";
    case Code::remote_error: return "remote error";
    case Code::in_progress: return "in progress";
    case Code::invalid_pointer: return "invalid pointer";
    case Code::invalid_type: return "invalid data type";
    case Code::invalid_op: return "invalid operator";
    case Code::invalid_count: return "invalid count";
    case Code::invalid_root: return "invalid root or peer";
    case Code::invalid_comm: return "invalid communicator";
    case Code::invalid_unique_id: return "invalid unique id";
    case Code::invalid_setting: return "invalid setting";
    case Code::mismatch: return "mismatched call";
    case Code::timeout: return "timeout";
    case Code::aborted: return "aborted";
    case Code::protocol_error: return "protocol error";
    case Code::out_of_memory: return "out of memory";
    case Code::unsupported: return "unsupported";
  }
  return "unknown result";
}

const std::string& Status::message() const {
  static const std::string none;
  return state_ ? state_->message : none;
}

Status Status::in(std::string_view where) const {
  return ok() ? *this : Status(code(), fmt::format("{}: {}", where, message()));
}

Status fail_errno(int error, std::string_view what) {
  return fail(Code::system_error, "{}: {} (errno {})", what, std::strerror(error), error);
}

}  // namespace weft
