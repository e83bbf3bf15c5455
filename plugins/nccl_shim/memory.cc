// Memory, registration, windows and operators.
#include <mutex>
#include <unordered_set>

#include "export.h"
#include "route.h"

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {
namespace {

/// What weftMemAlloc gave to the program.
struct OwnMemory {
  std::mutex mutex;
  std::unordered_set<void*> blocks;

  static OwnMemory& get() {
    static OwnMemory& memory = *new OwnMemory;
    return memory;
  }
};

}  // namespace

Result_t pncclMemAlloc(void** pointer, size_t bytes) {
  if (!pointer) return report(fail(Code::invalid_pointer, "ncclMemAlloc: ptr is NULL"));
  if (process_decision().backend == Backend::nccl)
    return call_real("ncclMemAlloc", &Functions::MemAlloc, pointer, bytes);
  const weftResult_t result = weftMemAlloc(pointer, bytes);
  if (result == weftSuccess && *pointer) {
    const std::lock_guard guard(OwnMemory::get().mutex);
    OwnMemory::get().blocks.insert(*pointer);
  }
  return from_weft(result, nullptr);
}
WEFT_NCCL_ALIAS(MemAlloc)

Result_t pncclMemFree(void* pointer) {
  if (!pointer) return kSuccess;
  bool own;
  {
    const std::lock_guard guard(OwnMemory::get().mutex);
    own = OwnMemory::get().blocks.erase(pointer) > 0;
  }
  if (own || process_decision().backend == Backend::weft) return from_weft(weftMemFree(pointer), nullptr);
  return call_real("ncclMemFree", &Functions::MemFree, pointer);
}
WEFT_NCCL_ALIAS(MemFree)

Result_t pncclCommRegister(Comm_t comm, void* buffer, size_t bytes, void** handle) {
  return ask("ncclCommRegister", &Functions::CommRegister, weftCommRegister, comm, buffer, bytes, handle);
}
WEFT_NCCL_ALIAS(CommRegister)

Result_t pncclCommDeregister(Comm_t comm, void* handle) {
  return ask("ncclCommDeregister", &Functions::CommDeregister, weftCommDeregister, comm, handle);
}
WEFT_NCCL_ALIAS(CommDeregister)

// A window that NCCL cannot make symmetric is NULL, without an error. Weft makes none.
Result_t pncclCommWindowRegister(Comm_t comm, void* buffer, size_t bytes, Window_t* window, int flags) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in("ncclCommWindowRegister"));
  if (!window) return report(fail(Code::invalid_pointer, "ncclCommWindowRegister: win is NULL"));
  if ((*handle)->backend == Backend::weft) {
    *window = nullptr;
    return kSuccess;
  }
  if (Status joined = join_group(Backend::nccl); !joined.ok()) return report(joined);
  return call_real("ncclCommWindowRegister", &Functions::CommWindowRegister, *(*handle)->real, buffer, bytes,
                   window, flags);
}
WEFT_NCCL_ALIAS(CommWindowRegister)

Result_t pncclCommWindowDeregister(Comm_t comm, Window_t window) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in("ncclCommWindowDeregister"));
  if ((*handle)->backend == Backend::nccl)
    return call_real("ncclCommWindowDeregister", &Functions::CommWindowDeregister, *(*handle)->real, window);
  if (!window) return kSuccess;
  return report(
      fail(Code::invalid_argument,
           "ncclCommWindowDeregister: win is {}, but this communicator is Weft's, whose windows are NULL",
           static_cast<void*>(window)));
}
WEFT_NCCL_ALIAS(CommWindowDeregister)

Result_t pncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, Comm_t comm) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in("ncclRedOpCreatePreMulSum"));
  if ((*handle)->backend == Backend::nccl)
    return call_real("ncclRedOpCreatePreMulSum", &Functions::RedOpCreatePreMulSum, op, scalar, type,
                     residence, *(*handle)->real);
  weftRedOp_t own = weftSum;
  const weftResult_t result =
      weftRedOpCreatePreMulSum(op ? &own : nullptr, scalar, static_cast<weftDataType_t>(type),
                               static_cast<weftScalarResidence_t>(residence), (*handle)->weft);
  if (result == weftSuccess) *op = own;
  return from_weft(result, (*handle)->weft);
}
WEFT_NCCL_ALIAS(RedOpCreatePreMulSum)

Result_t pncclRedOpDestroy(int op, Comm_t comm) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in("ncclRedOpDestroy"));
  if ((*handle)->backend == Backend::nccl)
    return call_real("ncclRedOpDestroy", &Functions::RedOpDestroy, op, *(*handle)->real);
  return from_weft(weftRedOpDestroy(static_cast<weftRedOp_t>(op), (*handle)->weft), (*handle)->weft);
}
WEFT_NCCL_ALIAS(RedOpDestroy)

}  // namespace weft::nccl
