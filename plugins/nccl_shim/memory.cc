// Memory, registration and operators.
#include <mutex>
#include <unordered_map>

#include "base/fork.h"
#include "device/cuda/device.h"
#include "export.h"
#include "route.h"

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {
namespace {

namespace cuda = device::cuda;
constexpr int kOfHost = -1;

/// What was given to the program and is not NCCL's.
struct OwnMemory {
  ForkSafeMutex mutex;
  std::unordered_map<void*, int> blocks;  // and the number of the device that it is of, or kOfHost

  static OwnMemory& get() {
    static OwnMemory& memory = *new OwnMemory;
    return memory;
  }
};

/// As NCCL's: memory of the calling thread's device. It is a plain allocation, which CUDA IPC can share.
Result<void*> allocate_on(int ordinal, size_t bytes) {
  if (bytes == 0) return nullptr;
  const Result<cuda::Device*> device = cuda::Device::open(ordinal);
  if (!device.ok()) return device.status();
  const cuda::Scope scope(**device);
  cuda::DevicePointer memory = 0;
  WEFT_TRY(cuda::check((*cuda::driver())->mem_alloc(&memory, bytes), "cuMemAlloc"));
  return reinterpret_cast<void*>(static_cast<uintptr_t>(memory));
}

Status free_on(int ordinal, void* memory) {
  const Result<cuda::Device*> device = cuda::Device::open(ordinal);
  if (!device.ok()) return device.status();
  const cuda::Scope scope(**device);
  return cuda::check((*cuda::driver())->mem_free(reinterpret_cast<uintptr_t>(memory)), "cuMemFree");
}

}  // namespace

Result_t pncclMemAlloc(void** pointer, size_t bytes) {
  if (!pointer) return report(fail(Code::invalid_pointer, "ncclMemAlloc: ptr is NULL"));
  if (process_decision().backend == Backend::nccl)
    return call_real("ncclMemAlloc", &Functions::MemAlloc, pointer, bytes);
  *pointer = nullptr;
  int ordinal = kOfHost;
  if (has_gpu()) {
    const Result<int> current = cuda::Device::current();
    if (!current.ok()) return report(current.status().in("ncclMemAlloc"));
    ordinal = *current;
    const Result<void*> memory = allocate_on(ordinal, bytes);
    if (!memory.ok()) return report(memory.status().in("ncclMemAlloc"));
    *pointer = *memory;
  } else if (weftResult_t result = weftMemAlloc(pointer, bytes); result != weftSuccess) {
    return from_weft(result, nullptr);
  }
  if (!*pointer) return kSuccess;
  const std::lock_guard guard(OwnMemory::get().mutex);
  OwnMemory::get().blocks.emplace(*pointer, ordinal);
  return kSuccess;
}
WEFT_NCCL_ALIAS(MemAlloc)

Result_t pncclMemFree(void* pointer) {
  if (!pointer) return kSuccess;
  int ordinal = kOfHost;
  bool own = false;
  {
    OwnMemory& memory = OwnMemory::get();
    const std::lock_guard guard(memory.mutex);
    if (const auto found = memory.blocks.find(pointer); found != memory.blocks.end()) {
      own = true;
      ordinal = found->second;
      memory.blocks.erase(found);
    }
  }
  if (ordinal != kOfHost) return report(free_on(ordinal, pointer).in("ncclMemFree"));
  // What nobody has allocated, Weft refuses with a sentence.
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
