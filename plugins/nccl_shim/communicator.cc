// Ending and asking communicators, versions and errors.
#include "export.h"
#include "route.h"
#include "windows.h"

using namespace weft;
using namespace weft::nccl_shim;

/// By this, Weft's loader knows that it has found the shim and not NCCL.
extern "C" WEFT_NCCL_VISIBLE const char weftNcclShim[] = "Weft";

namespace weft::nccl {
namespace {

using End = weftResult_t (*)(weftComm_t);

/// The real NCCL where WEFT_BACKEND is nccl, so that all communicators are its; else null. What "auto" comes
/// to is not asked for a version: that would initialize CUDA, in programs that ask before they fork.
const Library* real_by_setting() {
  if (wanted_backend() != Backend::nccl) return nullptr;
  const Result<const Library*>& real = Library::get();
  return real.ok() ? *real : nullptr;
}

/// Ends a communicator, or finalizes it. NULL is one that has ended, as it is for NCCL. In a group, NCCL
/// notes it for the group's end, and so does the shim for Weft's, which cannot be ended while their group is
/// open.
template <typename Real>
Result_t end(const char* name, Real real, End ours, Comm_t comm) {
  if (!comm) return kSuccess;
  const bool stays = ours == weftCommFinalize;
  const Result<Handle*> found = stays ? usable(comm) : handle_of(comm);
  if (!found.ok()) return report(found.status().in(name));
  Handle* handle = *found;
  if (is_being_made(handle))
    return report(
        fail(Code::invalid_usage, "{}: comm is being made by this group: end the group first", name));
  if (!stays && !handle->live.exchange(false))
    return report(fail(Code::invalid_comm, "{}: comm has been destroyed or aborted already", name));
  if (!handle->made()) return kSuccess;  // its creation failed
  if (!stays) forget_windows(handle);
  const bool of_nccl = handle->backend == Backend::nccl;
  // What Weft's group holds still reads the communicator; with none open, an abort need not wait.
  if (!of_nccl && in_group() && (ours != weftCommAbort || in_group_of(Backend::weft))) {
    note_end(ours, handle->weft);
    return kSuccess;
  }
  if (!of_nccl) {
    forget_ends(handle->weft);
    return from_weft(ours(handle->weft), handle->weft);
  }
  if (Status joined = join_group(Backend::nccl); !joined.ok()) return report(joined.in(name));
  return call_real(name, real, *handle->real);
}

}  // namespace

Result_t pncclGetVersion(int* version) {
  if (!version) return report(fail(Code::invalid_pointer, "ncclGetVersion: version is NULL"));
  const Library* const real = real_by_setting();
  *version = real ? real->version_code() : kVersionCode;
  return kSuccess;
}
WEFT_NCCL_ALIAS(GetVersion)

const char* pncclGetErrorString(int result) {
  if (const Library* const real = real_by_setting(); real && real->functions().GetErrorString)
    return real->functions().GetErrorString(result);
  if (result == kTimeout) return code_name(Code::timeout);
  return result >= kSuccess && result <= kInProgress ? code_name(static_cast<Code>(result))
                                                     : "unknown result";
}
WEFT_NCCL_ALIAS(GetErrorString)

// A communicator that has failed is what its program asks about, whichever thread asks, and whatever that
// thread was refused before or since.
const char* pncclGetLastError(Comm_t comm) {
  const Result<Handle*> found = usable(comm);
  const Handle* const handle = found.ok() ? *found : nullptr;
  const bool of_weft = handle && handle->backend == Backend::weft;
  weftResult_t state = weftSuccess;
  if (of_weft && weftCommGetAsyncError(handle->weft, &state) == weftSuccess)
    (void)note_failure(handle->weft, state);
  if (!last_sentence().empty()) return last_sentence().c_str();
  if (of_weft) return weftGetLastError(handle->weft);
  if (!handle && !last_was_real() && process_decision().backend != Backend::nccl) return "";
  const Result<const Library*>& real = Library::get();
  if (!real.ok() || !(*real)->functions().GetLastError) return "";
  return (*real)->functions().GetLastError(handle ? *handle->real : nullptr);
}
WEFT_NCCL_ALIAS(GetLastError)

void pncclResetDebugInit() {
  if (process_decision().backend != Backend::nccl) return;
  const Result<const Library*>& real = Library::get();
  if (real.ok() && (*real)->functions().ResetDebugInit) (*real)->functions().ResetDebugInit();
}
WEFT_NCCL_ALIAS(ResetDebugInit)

Result_t pncclCommFinalize(Comm_t comm) {
  return end("ncclCommFinalize", &Functions::CommFinalize, weftCommFinalize, comm);
}
WEFT_NCCL_ALIAS(CommFinalize)

Result_t pncclCommDestroy(Comm_t comm) {
  return end("ncclCommDestroy", &Functions::CommDestroy, weftCommDestroy, comm);
}
WEFT_NCCL_ALIAS(CommDestroy)

Result_t pncclCommAbort(Comm_t comm) {
  return end("ncclCommAbort", &Functions::CommAbort, weftCommAbort, comm);
}
WEFT_NCCL_ALIAS(CommAbort)

Result_t pncclCommRevoke(Comm_t comm, int flags) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in("ncclCommRevoke"));
  if ((*handle)->backend == Backend::nccl)
    return call_real("ncclCommRevoke", &Functions::CommRevoke, *(*handle)->real, flags);
  return report(
      fail(Code::unsupported,
           "ncclCommRevoke: this communicator is Weft's, which has no revoking: use ncclCommShrink with "
           "NCCL_SHRINK_ABORT, or ncclCommAbort"));
}
WEFT_NCCL_ALIAS(CommRevoke)

// Nothing can be asked of NCCL's children before they are there, so a program asks their parent.
Result_t pncclCommGetAsyncError(Comm_t comm, Result_t* error) {
  if (!error) return report(fail(Code::invalid_pointer, "ncclCommGetAsyncError: asyncError is NULL"));
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in("ncclCommGetAsyncError"));
  if ((*handle)->backend == Backend::nccl) {
    const Result_t asked =
        call_real("ncclCommGetAsyncError", &Functions::CommGetAsyncError, *(*handle)->real, error);
    if (asked == kSuccess) (void)from_real(*error);
    return asked;
  }
  weftResult_t own = weftSuccess;
  const weftResult_t asked = weftCommGetAsyncError((*handle)->weft, &own);
  if (asked != weftSuccess) return from_weft(asked, (*handle)->weft);
  *error = static_cast<Result_t>(nccl_code(static_cast<Code>(own)));
  (void)note_failure((*handle)->weft, own);
  if (*error == kSuccess && is_making_child(*handle)) *error = kInProgress;
  return kSuccess;
}
WEFT_NCCL_ALIAS(CommGetAsyncError)

Result_t pncclCommCount(Comm_t comm, int* count) {
  return ask("ncclCommCount", &Functions::CommCount, weftCommCount, comm, count);
}
WEFT_NCCL_ALIAS(CommCount)

Result_t pncclCommUserRank(Comm_t comm, int* rank) {
  return ask("ncclCommUserRank", &Functions::CommUserRank, weftCommUserRank, comm, rank);
}
WEFT_NCCL_ALIAS(CommUserRank)

Result_t pncclCommCuDevice(Comm_t comm, int* device) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in("ncclCommCuDevice"));
  if (!device) return report(fail(Code::invalid_pointer, "ncclCommCuDevice: device is NULL"));
  if ((*handle)->backend == Backend::nccl)
    return call_real("ncclCommCuDevice", &Functions::CommCuDevice, *(*handle)->real, device);
  if ((*handle)->device < 0)
    return report(fail(
        Code::unsupported,
        "ncclCommCuDevice: this communicator is Weft's and works on host memory, since this process may use "
        "no GPU"));
  *device = (*handle)->device;
  return kSuccess;
}
WEFT_NCCL_ALIAS(CommCuDevice)

}  // namespace weft::nccl
