// What driver.h says of the driver's interface is what cuda.h says: compared where the toolkit is there.
#include "device/cuda/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

namespace weft::device::cuda {

static_assert(std::is_same_v<DevicePointer, CUdeviceptr> && std::is_same_v<DeviceNumber, CUdevice>);
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle) && sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(int) == sizeof(CUresult) && sizeof(int) == sizeof(CUstreamCaptureMode));

static_assert(int{kInvalidValue} == CUDA_ERROR_INVALID_VALUE &&
              int{kOutOfMemory} == CUDA_ERROR_OUT_OF_MEMORY && int{kStubLibrary} == CUDA_ERROR_STUB_LIBRARY &&
              int{kNoDevice} == CUDA_ERROR_NO_DEVICE && int{kNotReady} == CUDA_ERROR_NOT_READY &&
              int{kNotSupported} == CUDA_ERROR_NOT_SUPPORTED &&
              int{kNotPermitted} == CUDA_ERROR_NOT_PERMITTED &&
              int{kStreamCaptureUnsupported} == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
              int{kStreamCaptureInvalidated} == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED &&
              int{kIllegalAddress} == CUDA_ERROR_ILLEGAL_ADDRESS &&
              int{kPeerAccessAlreadyEnabled} == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED &&
              int{kHostMemoryAlreadyRegistered} == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
              int{kHostMemoryNotRegistered} == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED &&
              int{kStreamCaptureImplicit} == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT &&
              int{kAlreadyMapped} == CUDA_ERROR_ALREADY_MAPPED &&
              int{kNoBinaryForGpu} == CUDA_ERROR_NO_BINARY_FOR_GPU &&
              int{kInvalidImage} == CUDA_ERROR_INVALID_IMAGE &&
              int{kInvalidContext} == CUDA_ERROR_INVALID_CONTEXT &&
              int{kInvalidHandle} == CUDA_ERROR_INVALID_HANDLE);
static_assert(int{kMultiprocessorCount} == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              int{kUnifiedAddressing} == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING &&
              int{kComputeCapabilityMajor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              int{kComputeCapabilityMinor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(int{kGpuDirectFlushOptions} == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS &&
              int{kGpuDirectWritesOrdering} == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING &&
              kFlushByHost == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST &&
              kFlushCurrentContext == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
              kFlushToOwner == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
              kFlushToOwner == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER &&
              kFlushToAll == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES &&
              kFlushToAll == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES &&
              kDmaBufHandle == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(sizeof(StreamOperation) == sizeof(CUstreamBatchMemOpParams) &&
              offsetof(StreamOperation, address) == offsetof(CUstreamBatchMemOpParams, waitValue.address) &&
              offsetof(StreamOperation, value) == offsetof(CUstreamBatchMemOpParams, waitValue.value) &&
              offsetof(StreamOperation, flags) == offsetof(CUstreamBatchMemOpParams, waitValue.flags) &&
              offsetof(StreamOperation, value) == offsetof(CUstreamBatchMemOpParams, writeValue.value) &&
              offsetof(StreamOperation, flags) == offsetof(CUstreamBatchMemOpParams, writeValue.flags) &&
              kWaitValue32 == CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
              kWriteValue32 == CU_STREAM_MEM_OP_WRITE_VALUE_32);
static_assert(int{kMemoryType} == CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
              int{kBufferId} == CU_POINTER_ATTRIBUTE_BUFFER_ID &&
              int{kIsManaged} == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
              int{kDeviceOrdinal} == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
              int{kIsIpcCapable} == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE &&
              int{kRangeStart} == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR &&
              int{kRangeBytes} == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(unsigned{kHostMemory} == CU_MEMORYTYPE_HOST && unsigned{kDeviceMemory} == CU_MEMORYTYPE_DEVICE);
static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE &&
              kHostAllocMapped == CU_MEMHOSTALLOC_DEVICEMAP &&
              kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE &&
              kHostRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP &&
              kStreamNonBlocking == CU_STREAM_NON_BLOCKING &&
              kEventDisableTiming == CU_EVENT_DISABLE_TIMING &&
              kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS &&
              kWaitValueGeq == CU_STREAM_WAIT_VALUE_GEQ &&
              kWriteValueDefault == CU_STREAM_WRITE_VALUE_DEFAULT);
static_assert(kCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE &&
              kCaptureActive == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
              kCaptureInvalidated == CU_STREAM_CAPTURE_STATUS_INVALIDATED &&
              kCaptureModeGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL &&
              kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED &&
              kUserObjectNoDestructorSync == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC &&
              kUserObjectMove == CU_GRAPH_USER_OBJECT_MOVE && sizeof(uint64_t) == sizeof(cuuint64_t));

}  // namespace weft::device::cuda
#endif
