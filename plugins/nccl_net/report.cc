#include "report.h"

#include <atomic>

#include "base/log.h"

namespace weft::nccl_net {
namespace {

std::atomic<abi::Logger> nccl_logger{nullptr};

/// To NCCL's log, or by `ours` where NCCL has not given one. The subsystems are those of NCCL's own networks:
/// errors have all of them, so that no mask hides an error.
template <typename Ours>
void tell(abi::LogLevel level, const std::string& text, Ours ours) {
  const unsigned long subsystems = level == abi::kLogWarn ? abi::kLogAll : abi::kLogInit | abi::kLogNet;
  if (const abi::Logger logger = nccl_logger.load())
    logger(level, subsystems, "weft", 0, "NET/Weft: %s", text.c_str());
  else ours(text);
}

}  // namespace

void set_logger(abi::Logger logger) { nccl_logger.store(logger); }

abi::Result report(const Status& status) {
  if (status.ok()) return abi::kSuccess;
  tell(abi::kLogWarn, status.message(), [](const std::string& text) { log::error("{}", text); });
  return result_of(status);
}

void warn(const std::string& text) {
  tell(abi::kLogWarn, text, [](const std::string& ours) { log::warn("{}", ours); });
}

void inform(const std::string& text) {
  tell(abi::kLogInfo, text, [](const std::string& ours) { log::info("{}", ours); });
}

abi::Result result_of(const Status& status) {
  switch (status.code()) {
    case Code::ok: return abi::kSuccess;
    case Code::unhandled_cuda_error: return abi::kUnhandledCudaError;
    case Code::system_error:
    case Code::out_of_memory: return abi::kSystemError;
    case Code::invalid_argument:
    case Code::invalid_pointer:
    case Code::invalid_count: return abi::kInvalidArgument;
    case Code::invalid_usage:
    case Code::invalid_setting:
    case Code::mismatch:
    case Code::unsupported: return abi::kInvalidUsage;
    case Code::remote_error:
    case Code::timeout:
    case Code::aborted:
    case Code::protocol_error: return abi::kRemoteError;
    default: return abi::kInternalError;
  }
}

}  // namespace weft::nccl_net
