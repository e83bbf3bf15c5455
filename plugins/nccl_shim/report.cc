#include "report.h"

#include "nccl/library.h"

namespace weft::nccl_shim {
namespace {
thread_local std::string t_sentence;
}  // namespace

nccl::Result_t report(const Status& status) {
  if (!status.ok()) t_sentence = status.message();
  return static_cast<nccl::Result_t>(nccl::nccl_code(status.code()));
}

nccl::Result_t from_weft(weftResult_t result, weftComm_t comm) {
  if (result == weftSuccess || result == weftInProgress) return static_cast<nccl::Result_t>(result);
  t_sentence = weftGetLastError(comm);
  return static_cast<nccl::Result_t>(nccl::nccl_code(static_cast<Code>(result)));
}

nccl::Result_t from_real(nccl::Result_t result) {
  if (result != nccl::kSuccess && result != nccl::kInProgress) t_sentence.clear();
  return result;
}

const std::string& last_sentence() { return t_sentence; }

}  // namespace weft::nccl_shim
