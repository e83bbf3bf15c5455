// Constants and types of cuda/driver.h and cuda/cublaslt.h are those of the libraries' headers. They are
// compared where the headers are there.
#include "device/cuda/cublaslt.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace loom::cuda {

static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr) && sizeof(DeviceNumber) == sizeof(CUdevice));
static_assert(int{kSuccess} == CUDA_SUCCESS && int{kOutOfMemory} == CUDA_ERROR_OUT_OF_MEMORY &&
              int{kNoBinaryForGpu} == CUDA_ERROR_NO_BINARY_FOR_GPU &&
              int{kUnsupportedPtxVersion} == CUDA_ERROR_UNSUPPORTED_PTX_VERSION &&
              int{kNotFound} == CUDA_ERROR_NOT_FOUND);
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

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace loom::cuda {

static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(LtHeuristic, workspace_bytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(LtHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(int{kLtSuccess} == CUBLAS_STATUS_SUCCESS &&
              int{kLtNotInitialized} == CUBLAS_STATUS_NOT_INITIALIZED &&
              int{kLtAllocFailed} == CUBLAS_STATUS_ALLOC_FAILED &&
              int{kLtInvalidValue} == CUBLAS_STATUS_INVALID_VALUE &&
              int{kLtArchMismatch} == CUBLAS_STATUS_ARCH_MISMATCH &&
              int{kLtExecutionFailed} == CUBLAS_STATUS_EXECUTION_FAILED &&
              int{kLtInternalError} == CUBLAS_STATUS_INTERNAL_ERROR &&
              int{kLtNotSupported} == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(int{kLtFloat32} == CUDA_R_32F && int{kLtFloat16} == CUDA_R_16F &&
              int{kLtBfloat16} == CUDA_R_16BF);
static_assert(int{kLtComputeFloat32} == CUBLAS_COMPUTE_32F &&
              int{kLtComputeTf32} == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(int{kLtMajorVersion} == MAJOR_VERSION && int{kLtMinorVersion} == MINOR_VERSION &&
              int{kLtPatchLevel} == PATCH_LEVEL);
static_assert(int{kLtTransposeA} == CUBLASLT_MATMUL_DESC_TRANSA &&
              int{kLtTransposeB} == CUBLASLT_MATMUL_DESC_TRANSB &&
              int{kLtEpilogue} == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              int{kLtBiasPointer} == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              int{kLtAuxPointer} == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER &&
              int{kLtAuxLd} == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD &&
              int{kLtBiasType} == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(int{kLtNormal} == CUBLAS_OP_N && int{kLtTransposed} == CUBLAS_OP_T);
static_assert(int{kLtEpilogueDefault} == CUBLASLT_EPILOGUE_DEFAULT &&
              int{kLtEpilogueBias} == CUBLASLT_EPILOGUE_BIAS &&
              int{kLtEpilogueGeluAux} == CUBLASLT_EPILOGUE_GELU_AUX &&
              int{kLtEpilogueGeluAuxBias} == CUBLASLT_EPILOGUE_GELU_AUX_BIAS &&
              int{kLtEpilogueDgelu} == CUBLASLT_EPILOGUE_DGELU &&
              int{kLtEpilogueBgradA} == CUBLASLT_EPILOGUE_BGRADA &&
              int{kLtEpilogueBgradB} == CUBLASLT_EPILOGUE_BGRADB);
static_assert(int{kLtMaxWorkspaceBytes} == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              int{kLtReductionSchemes} == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
              int{kLtAlignmentA} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              int{kLtAlignmentB} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              int{kLtAlignmentC} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              int{kLtAlignmentD} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES &&
              int{kLtNoReduction} == CUBLASLT_REDUCTION_SCHEME_NONE &&
              int{kLtReductionInFp32} == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

}  // namespace loom::cuda
#endif
