// Hands a call to the library that has the communicator.
#pragma once

#include <type_traits>
#include <utility>

#include "group.h"
#include "nccl/gpu.h"
#include "nccl/tally.h"
#include "nccl/transfers.h"
#include "report.h"

namespace weft::nccl_shim {

using nccl::Functions;
using nccl::Result_t;
using nccl::Stream_t;

/// What this process decides on where there is neither a communicator nor a device.
const nccl::Decision& process_decision();

/// The real NCCL; an error says why there is none.
inline Result<const nccl::Library*> real_nccl() {
  const Result<const nccl::Library*>& library = nccl::Library::get();
  if (library.ok()) return library;
  return fail(library.status().code(), "this call is for NCCL, but {}", library.status().message());
}

/// Calls a function of the real NCCL, if it has it. `name` is spelled nccl….
template <typename... Parameters, typename... Arguments>
Result_t call_real(const char* name, Result_t (*Functions::*member)(Parameters...), Arguments... arguments) {
  const Result<const nccl::Library*> real = real_nccl();
  if (!real.ok()) return report(real.status().in(name));
  Result_t (*function)(Parameters...) = (*real)->functions().*member;
  if (Status has = (*real)->has(function, name); !has.ok()) return report(has);
  return from_real(function(arguments...));
}

/// A function that came late, and what does its work with the functions of an NCCL that lacks it.
template <typename... Parameters>
struct OrMade {
  Result_t (*Functions::*member)(Parameters...);
  Status (*made)(const nccl::Library&, Parameters...);
};
template <typename... Parameters>
OrMade(Result_t (*Functions::*)(Parameters...), Status (*)(const nccl::Library&, Parameters...))
    -> OrMade<Parameters...>;

template <typename... Parameters, typename... Arguments>
Result_t call_real(const char* name, OrMade<Parameters...> real, Arguments... arguments) {
  const Result<const nccl::Library*> library = real_nccl();
  if (!library.ok()) return report(library.status().in(name));
  if ((*library)->functions().*real.member) return call_real(name, real.member, arguments...);
  const Status done = real.made(**library, arguments...);
  return done.code() == Code::in_progress ? nccl::kInProgress : report(done.in(name));
}

/// Refuses the operators that Weft has and NCCL lacks: a program of NCCL has not asked for them.
template <typename Parameter, typename Argument>
Status check_operator([[maybe_unused]] Argument value) {
  if constexpr (std::is_same_v<Parameter, weftRedOp_t>)
    if (value >= weftBand && value < weftNumOps)
      return fail(Code::invalid_op,
                  "op is {}, must be in [0, {}) (ncclSum to ncclAvg) or made by ncclRedOpCreatePreMulSum for "
                  "this communicator",
                  static_cast<int>(value), static_cast<int>(weftBand));
  return {};
}
template <typename... Parameters, typename... Arguments>
Status check_operators(weftResult_t (*)(Parameters...), Arguments... arguments) {
  Status status;
  (void)((status = check_operator<Parameters>(arguments), status.ok()) && ...);
  return status;
}

/// Calls a function of Weft with NCCL's arguments: the values of enumerations are the same.
template <typename... Parameters, typename... Arguments>
weftResult_t call_weft(weftResult_t (*function)(Parameters...), Arguments... arguments) {
  return function(static_cast<Parameters>(arguments)...);
}

/// Whether this process may use a GPU. If so, Weft's communicators are of GPU memory, which is what programs
/// of NCCL have.
inline bool has_gpu() { return nccl::gpu() && nccl::gpu()->devices() > 0; }

/// A collective or transfer. Weft's follows the CUDA stream on GPU memory; on host memory, on machines that
/// have no CUDA streams, it returns when the result is there.
template <typename Real, typename Ours, typename... Arguments>
Result_t operate(const char* name, Real real, Ours ours, Comm_t comm, Stream_t stream,
                 Arguments... arguments) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return refuse(handle.status().in(name));
  const Backend backend = (*handle)->backend;
  nccl::tally::count_call(backend);
  if (Status joined = join_group(backend); !joined.ok()) return refuse(joined.in(name));
  if (backend == Backend::nccl) return call_real(name, real, arguments..., *(*handle)->real, stream);
  const weftComm_t own = (*handle)->weft;
  const auto own_stream = (*handle)->of_device ? reinterpret_cast<weftStream_t>(stream) : nullptr;
  if (Status known = check_operators(ours, arguments..., own, own_stream); !known.ok())
    return refuse(known.in(name));
  return from_weft(call_weft(ours, arguments..., own, own_stream), own);
}

/// A question or another call of one communicator; the communicator comes first in both.
template <typename Real, typename Ours, typename... Arguments>
Result_t ask(const char* name, Real real, Ours ours, Comm_t comm, Arguments... arguments) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(name));
  if ((*handle)->backend == Backend::nccl) return call_real(name, real, *(*handle)->real, arguments...);
  return from_weft(call_weft(ours, (*handle)->weft, arguments...), (*handle)->weft);
}

/// A function of communicators that only the real NCCL's have; `lacks` says what Weft's lack: "no device
/// API".
template <typename Real>
Result_t only_real(const char* name, const char* lacks, Comm_t comm, Real real) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(name));
  if ((*handle)->backend == Backend::nccl) return real(*(*handle)->real);
  return report(fail(Code::unsupported,
                     "{}: this communicator is Weft's, which has {}; WEFT_BACKEND=nccl gives it to NCCL",
                     name, lacks));
}

}  // namespace weft::nccl_shim
