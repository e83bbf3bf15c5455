// What NCCL 2.29 and 2.30 added to its host API, except for growing (create.cc): one-sided operations,
// suspending, parameters. Only the real NCCL has them; on a communicator of Weft each is an error that says
// so.
#include "export.h"
#include "route.h"

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {
namespace {

/// An operation of one rank on the memory of others; it may be grouped.
template <typename Member, typename... Arguments>
Result_t one_sided(const char* name, Member member, Comm_t comm, Stream_t stream, Arguments... arguments) {
  return only_real(name, "no one-sided operations", comm, [&](Comm_t real) {
    tally::count_call(Backend::nccl);
    if (Status joined = join_group(Backend::nccl); !joined.ok()) return report(joined.in(name));
    return call_real(name, member, arguments..., real, stream);
  });
}

/// A function of one communicator.
template <typename Member, typename... Arguments>
Result_t of_comm(const char* name, const char* lacks, Member member, Comm_t comm, Arguments... arguments) {
  return only_real(name, lacks, comm,
                   [&](Comm_t real) { return call_real(name, member, real, arguments...); });
}

}  // namespace

// ---- One-sided operations

Result_t pncclPutSignal(const void* local, size_t count, int type, int peer, Window_t window, size_t offset,
                        int signal, int context, unsigned flags, Comm_t comm, Stream_t stream) {
  return one_sided("ncclPutSignal", &Functions::PutSignal, comm, stream, local, count, type, peer, window,
                   offset, signal, context, flags);
}
WEFT_NCCL_ALIAS(PutSignal)

Result_t pncclSignal(int peer, int signal, int context, unsigned flags, Comm_t comm, Stream_t stream) {
  return one_sided("ncclSignal", &Functions::Signal, comm, stream, peer, signal, context, flags);
}
WEFT_NCCL_ALIAS(Signal)

Result_t pncclWaitSignal(int count, void* descriptors, Comm_t comm, Stream_t stream) {
  return one_sided("ncclWaitSignal", &Functions::WaitSignal, comm, stream, count, descriptors);
}
WEFT_NCCL_ALIAS(WaitSignal)

/// As of NCCL's communicators without symmetric memory, whose windows are NULL, too.
Result_t pncclWinGetUserPtr(Comm_t comm, Window_t window, void** pointer) {
  constexpr const char* kName = "ncclWinGetUserPtr";
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(kName));
  if ((*handle)->backend == Backend::nccl)
    return call_real(kName, &Functions::WinGetUserPtr, *(*handle)->real, window, pointer);
  if (!pointer) return report(fail(Code::invalid_pointer, "{}: outUserPtr is NULL", kName));
  *pointer = nullptr;
  return kSuccess;
}
WEFT_NCCL_ALIAS(WinGetUserPtr)

// ---- Communicators

Result_t pncclCommGetUniqueId(Comm_t comm, UniqueId* id) {
  return of_comm("ncclCommGetUniqueId", "no growing", &Functions::CommGetUniqueId, comm, id);
}
WEFT_NCCL_ALIAS(CommGetUniqueId)

Result_t pncclCommSuspend(Comm_t comm, int flags) {
  return of_comm("ncclCommSuspend", "no suspending", &Functions::CommSuspend, comm, flags);
}
WEFT_NCCL_ALIAS(CommSuspend)

Result_t pncclCommResume(Comm_t comm) {
  return of_comm("ncclCommResume", "no suspending", &Functions::CommResume, comm);
}
WEFT_NCCL_ALIAS(CommResume)

Result_t pncclCommMemStats(Comm_t comm, int what, uint64_t* value) {
  return of_comm("ncclCommMemStats", "no such statistics", &Functions::CommMemStats, comm, what, value);
}
WEFT_NCCL_ALIAS(CommMemStats)

// ---- Parameters of the real NCCL, whoever has the communicators

Result_t pncclParamBind(Param_t* parameter, const char* key) {
  return call_real("ncclParamBind", &Functions::ParamBind, parameter, key);
}
WEFT_NCCL_ALIAS(ParamBind)

#define WEFT_NCCL_PARAM_GET(name, type)                                                 \
  Result_t pncclParamGet##name(Param_t parameter, type* out) {                          \
    return call_real("ncclParamGet" #name, &Functions::ParamGet##name, parameter, out); \
  }                                                                                     \
  WEFT_NCCL_ALIAS(ParamGet##name)
WEFT_NCCL_PARAM_GET(I8, int8_t)
WEFT_NCCL_PARAM_GET(I16, int16_t)
WEFT_NCCL_PARAM_GET(I32, int32_t)
WEFT_NCCL_PARAM_GET(I64, int64_t)
WEFT_NCCL_PARAM_GET(U8, uint8_t)
WEFT_NCCL_PARAM_GET(U16, uint16_t)
WEFT_NCCL_PARAM_GET(U32, uint32_t)
WEFT_NCCL_PARAM_GET(U64, uint64_t)
WEFT_NCCL_PARAM_GET(Str, const char*)
#undef WEFT_NCCL_PARAM_GET

Result_t pncclParamGet(Param_t parameter, void* out, int most_bytes, int* bytes) {
  return call_real("ncclParamGet", &Functions::ParamGet, parameter, out, most_bytes, bytes);
}
WEFT_NCCL_ALIAS(ParamGet)

Result_t pncclParamGetParameter(const char* key, const char** value, int* bytes) {
  return call_real("ncclParamGetParameter", &Functions::ParamGetParameter, key, value, bytes);
}
WEFT_NCCL_ALIAS(ParamGetParameter)

Result_t pncclParamGetAllParameterKeys(const char*** keys, int* count) {
  return call_real("ncclParamGetAllParameterKeys", &Functions::ParamGetAllParameterKeys, keys, count);
}
WEFT_NCCL_ALIAS(ParamGetAllParameterKeys)

void pncclParamDumpAll() {
  const Result<const Library*> real = real_nccl();
  if (real.ok() && (*real)->functions().ParamDumpAll) (*real)->functions().ParamDumpAll();
}
WEFT_NCCL_ALIAS(ParamDumpAll)

}  // namespace weft::nccl
