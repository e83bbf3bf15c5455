// How errors leave the shim: as NCCL's codes, with a sentence for ncclGetLastError.
//
// Thread safety: the sentence belongs to the thread.
#pragma once

#include <string>

#include "base/status.h"
#include "nccl/abi.h"
#include "weft/weft.h"

namespace weft::nccl_shim {

/// Keeps the sentence and returns the code.
nccl::Result_t report(const Status& status);
/// The same for what a function of Weft returned; comm may be null.
nccl::Result_t from_weft(weftResult_t result, weftComm_t comm);
/// What the real NCCL returned, or said of a communicator: it has its own sentence.
nccl::Result_t from_real(nccl::Result_t result);
/// Keeps the reason that a communicator of Weft has failed for, if it has. Returns whether.
bool note_failure(weftComm_t comm, weftResult_t state);
/// The thread's last error if the shim or Weft had it; "" if NCCL did, or nothing went wrong.
const std::string& last_sentence();
/// Whether the thread's last error was NCCL's.
bool last_was_real();

}  // namespace weft::nccl_shim
