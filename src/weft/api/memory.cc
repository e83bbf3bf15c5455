// Memory that peers can reach, registration, and operators made by the user.
#include <algorithm>
#include <cstring>

#include "api/handles.h"
#include "base/mutex.h"
#include "device/window.h"

using namespace weft;
using namespace weft::api;

namespace {

template <typename... Parameters, typename... Arguments>
Status nccl_call(const char* name, nccl::Result_t (*nccl::Functions::*member)(Parameters...),
                 Arguments... arguments) {
  const Result<const nccl::Library*>& library = nccl::Library::get();
  if (!library) return library.status();
  nccl::Result_t (*function)(Parameters...) = (*library)->functions().*member;
  WEFT_TRY((*library)->has(function, name));
  return (*library)->check(function(arguments...), name, nullptr);
}

}  // namespace

weftResult_t weftMemAlloc(void** ptr, size_t size) {
  if (!ptr) return report(fail(Code::invalid_pointer, "weftMemAlloc: ptr is NULL"));
  *ptr = nullptr;
  if (size == 0) return weftSuccess;
  if (nccl::wanted_backend() == nccl::Backend::nccl)
    return report(nccl_call("ncclMemAlloc", &nccl::Functions::MemAlloc, ptr, size).in(__func__));
  auto allocated = device::window_alloc(size);
  if (!allocated) return report(allocated.status().in(__func__));
  *ptr = *allocated;
  return weftSuccess;
}

weftResult_t weftMemFree(void* ptr) {
  if (!ptr) return weftSuccess;
  if (nccl::wanted_backend() == nccl::Backend::nccl)
    return report(nccl_call("ncclMemFree", &nccl::Functions::MemFree, ptr).in(__func__));
  return report(device::window_free(ptr).in(__func__));
}

weftResult_t weftCommRegister(const weftComm_t comm, void* buff, size_t size, void** handle) {
  const InUse in_use(comm);
  auto found = usable(comm);
  if (!found) return report(found.status().in(__func__));
  if (!buff || !handle)
    return report(fail(Code::invalid_pointer, "weftCommRegister: {} is NULL", buff ? "handle" : "buff"),
                  comm);
  if (size == 0)
    return report(fail(Code::invalid_argument, "weftCommRegister: size is 0, must be at least 1"), comm);
  if (comm->fallback && comm->fallback->takes_pointer(buff)) {
    auto registered = comm->fallback->register_buffer(buff, size);
    if (!registered) return report(registered.status().in(__func__), comm);
    *handle = *registered;
    return weftSuccess;
  }
  const auto registered = [&, &known = **found] {
    const engine::Lock lock = known.context().lock();
    return known.buffers().registrations.add(buff, size, known.on_device().executor != nullptr);
  }();
  if (!registered) return report(registered.status().in(__func__), comm);
  *handle = *registered;
  const MutexLock guard(comm->mutex);
  comm->registrations.push_back(*handle);
  return weftSuccess;
}

weftResult_t weftCommDeregister(const weftComm_t comm, void* handle) {
  const InUse in_use(comm);
  auto found = existing(comm);
  if (!found) return report(found.status().in(__func__));
  if (comm->fallback && comm->fallback->deregister_buffer(handle)) return weftSuccess;
  {
    const MutexLock guard(comm->mutex);
    auto known = std::find(comm->registrations.begin(), comm->registrations.end(), handle);
    if (known == comm->registrations.end())
      return report(fail(Code::invalid_argument,
                         "weftCommDeregister: {} is no handle of this communicator, or was "
                         "deregistered before",
                         handle),
                    comm);
    comm->registrations.erase(known);
  }
  const engine::Lock lock = (*found)->context().lock();
  (*found)->buffers().registrations.remove(handle);
  return weftSuccess;
}

weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                      weftScalarResidence_t residence, weftComm_t comm) {
  const InUse in_use(comm);
  auto found = usable(comm);
  if (!found) return report(found.status().in(__func__));
  if (!op || !scalar)
    return report(fail(Code::invalid_pointer, "weftRedOpCreatePreMulSum: {} is NULL", op ? "scalar" : "op"),
                  comm);
  if (static_cast<int>(datatype) < 0 || static_cast<int>(datatype) >= device::kDataTypes)
    return report(fail(Code::invalid_type, "weftRedOpCreatePreMulSum: datatype is {}, must be in [0, {})",
                       static_cast<int>(datatype), device::kDataTypes),
                  comm);
  if (residence != weftScalarDevice && residence != weftScalarHostImmediate)
    return report(fail(Code::invalid_argument,
                       "weftRedOpCreatePreMulSum: residence is {}, must be weftScalarDevice (0) "
                       "or weftScalarHostImmediate (1)",
                       static_cast<int>(residence)),
                  comm);
  if (comm->fallback && comm->fallback->takes_all() && Fallback::is_device_memory(scalar))
    return report(
        fail(Code::unsupported,
             "weftRedOpCreatePreMulSum: scalar is device memory, but this communicator's operations "
             "are NCCL's, which is handed its value: pass host memory"),
        comm);
  if ((*found)->options().device < 0 && Fallback::is_device_memory(scalar))
    return report(fail(Code::unsupported,
                       "weftRedOpCreatePreMulSum: scalar is device memory, but this communicator is of host "
                       "memory: pass host memory, or create the communicator with config.device"),
                  comm);
  PreMulSum premul;
  premul.live = true;
  premul.type = static_cast<device::DataType>(datatype);
  if (residence == weftScalarDevice) premul.late_scalar = scalar;
  else std::memcpy(premul.scalar, scalar, device::size_of(premul.type));

  const MutexLock guard(comm->mutex);
  auto free = std::find_if(comm->operators.begin(), comm->operators.end(),
                           [](const PreMulSum& o) { return !o.live; });
  if (free == comm->operators.end()) {
    if (comm->operators.size() == 1u << 12)
      return report(fail(Code::invalid_usage,
                         "weftRedOpCreatePreMulSum: this communicator has 4096 operators already: "
                         "destroy some"),
                    comm);
    free = comm->operators.emplace(comm->operators.end());
  }
  *free = premul;
  *op = static_cast<weftRedOp_t>(weftNumOps + (comm->serial << 12) + (free - comm->operators.begin()));
  return weftSuccess;
}

weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm) {
  const InUse in_use(comm);
  auto found = existing(comm);
  if (!found) return report(found.status().in(__func__));
  const int index = static_cast<int>(op) - weftNumOps - (comm->serial << 12);
  const MutexLock guard(comm->mutex);
  if (op < weftNumOps)
    return report(fail(Code::invalid_op, "weftRedOpDestroy: op is {}, a built-in operator, which stays",
                       static_cast<int>(op)),
                  comm);
  if (index < 0 || index >= static_cast<int>(comm->operators.size()) || !comm->operators[index].live)
    return report(
        fail(Code::invalid_op, "weftRedOpDestroy: op is {}, not a live operator of this communicator",
             static_cast<int>(op)),
        comm);
  comm->operators[index].live = false;
  return weftSuccess;
}
