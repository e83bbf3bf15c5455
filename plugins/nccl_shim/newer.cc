// What NCCL added to its host API since 2.29, except for growing (create.cc), windows (windows.cc) and
// configured collectives (configured.cc): one-sided operations; and suspending, parameters and encryption,
// which only the real NCCL has. On a communicator of Weft each of these is an error that says so.
#include "export.h"
#include "route.h"
#include "windows.h"

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {
namespace {

/// weftPutSignal() with a window of NCCL's.
weftResult_t put_signal(const void* local, size_t count, weftDataType_t type, int peer, Window_t window,
                        size_t offset, int signal, int context, unsigned flags, weftComm_t comm,
                        weftStream_t stream) {
  return weftPutSignal(local, count, type, peer, weft_window(window), offset, signal, context, flags, comm,
                       stream);
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
  return operate("ncclPutSignal", &Functions::PutSignal, put_signal, comm, stream, local, count, type, peer,
                 window, offset, signal, context, flags);
}
WEFT_NCCL_ALIAS(PutSignal)

Result_t pncclSignal(int peer, int signal, int context, unsigned flags, Comm_t comm, Stream_t stream) {
  return operate("ncclSignal", &Functions::Signal, weftSignal, comm, stream, peer, signal, context, flags);
}
WEFT_NCCL_ALIAS(Signal)

Result_t pncclWaitSignal(int count, void* descriptors, Comm_t comm, Stream_t stream) {
  return operate("ncclWaitSignal", &Functions::WaitSignal, weftWaitSignal, comm, stream, count, descriptors);
}
WEFT_NCCL_ALIAS(WaitSignal)

// ---- Communicators

constexpr const char* kNoSuspending = "no suspending: scratch is the job's, and a communicator keeps little";

Result_t pncclCommSuspend(Comm_t comm, int flags) {
  return of_comm("ncclCommSuspend", kNoSuspending, &Functions::CommSuspend, comm, flags);
}
WEFT_NCCL_ALIAS(CommSuspend)

Result_t pncclCommResume(Comm_t comm) {
  return of_comm("ncclCommResume", kNoSuspending, &Functions::CommResume, comm);
}
WEFT_NCCL_ALIAS(CommResume)

Result_t pncclCommMemStats(Comm_t comm, int what, uint64_t* value) {
  return of_comm("ncclCommMemStats", "no memory statistics", &Functions::CommMemStats, comm, what, value);
}
WEFT_NCCL_ALIAS(CommMemStats)

// ---- Encryption

/// It is a setting of the process, for the connections of communicators that are made later.
Result_t pncclSetEncryption(const EncryptionConfig* config) {
  constexpr const char* kName = "ncclSetEncryption";
  if (!config) return report(fail(Code::invalid_pointer, "{}: config is NULL", kName));
  if (process_decision().backend == Backend::nccl) return call_real(kName, &Functions::SetEncryption, config);
  if (config->magic != kConfigMagic || config->size < sizeof *config)
    return report(
        fail(Code::invalid_argument,
             "{}: config does not start as NCCL_ENCRYPTION_CONFIG_INITIALIZER (size {}, magic {:#x})", kName,
             config->size, config->magic));
  if (config->mode == kNoEncryption) return kSuccess;
  return report(fail(Code::unsupported,
                     "{}: mode is {}, but communicators go to Weft here, which does not encrypt its "
                     "connections; WEFT_BACKEND=nccl gives them to NCCL",
                     kName, config->mode));
}
WEFT_NCCL_ALIAS(SetEncryption)

// ---- Parameters of the real NCCL, also if Weft has the communicators

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
