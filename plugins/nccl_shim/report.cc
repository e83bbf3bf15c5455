#include "report.h"

#include <utility>

#include "nccl/library.h"

namespace weft::nccl_shim {
namespace {
thread_local std::string t_sentence;
thread_local bool t_was_real = false;

void keep(std::string sentence) {
  t_sentence = std::move(sentence);
  t_was_real = false;
}

}  // namespace

nccl::Result_t report(const Status& status) {
  if (!status.ok()) keep(status.message());
  return static_cast<nccl::Result_t>(nccl::nccl_code(status.code()));
}

nccl::Result_t from_weft(weftResult_t result, weftComm_t comm) {
  if (result == weftSuccess || result == weftInProgress) return static_cast<nccl::Result_t>(result);
  keep(weftGetLastError(comm));
  return static_cast<nccl::Result_t>(nccl::nccl_code(static_cast<Code>(result)));
}

nccl::Result_t from_real(nccl::Result_t result) {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return result;
  t_sentence.clear();
  t_was_real = true;
  return result;
}

bool note_failure(weftComm_t comm, weftResult_t state) {
  if (state == weftSuccess || state == weftInProgress) return false;
  keep(weftGetLastError(comm));
  return true;
}

const std::string& last_sentence() { return t_sentence; }
bool last_was_real() { return t_was_real; }

}  // namespace weft::nccl_shim
