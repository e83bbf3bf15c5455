// What cuda/driver.h and cuda/cublaslt.h say of the libraries' interfaces is what their headers say: compared
// where the headers are there.
#include "device/cuda/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace loom::cuda {

static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr) && sizeof(DeviceNumber) == sizeof(CUdevice));
static_assert(int{kSuccess} == CUDA_SUCCESS && int{kOutOfMemory} == CUDA_ERROR_OUT_OF_MEMORY &&
              int{kNoBinaryForGpu} == CUDA_ERROR_NO_BINARY_FOR_GPU &&
              int{kUnsupportedPtxVersion} == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(int{kMultiprocessorCount} == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              int{kUnifiedAddressing} == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING &&
              int{kComputeCapabilityMajor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              int{kComputeCapabilityMinor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR &&
              int{kMostSharedBytesOfBlock} == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kMaxDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
              kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE &&
              kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventDefault == CU_EVENT_DEFAULT &&
              kEventDisableTiming == CU_EVENT_DISABLE_TIMING);

}  // namespace loom::cuda
#endif
