// Constants and types of cuda/driver.h, cuda/cublaslt.h and cuda/cudnn.h are those of the libraries' headers.
// They are compared where the headers are there.
#include "device/cuda/cublaslt.h"
#include "device/cuda/cudnn.h"

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

#if __has_include(<cudnn_graph.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn_graph.h>

namespace loom::cuda {

static_assert(int{kDnnSuccess} == CUDNN_STATUS_SUCCESS &&
              int{kDnnNotInitialized} == CUDNN_STATUS_NOT_INITIALIZED &&
              int{kDnnBadParameter} == CUDNN_STATUS_BAD_PARAM &&
              int{kDnnNullPointer} == CUDNN_STATUS_BAD_PARAM_NULL_POINTER &&
              int{kDnnMisalignedPointer} == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER &&
              int{kDnnNotFinalized} == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED &&
              int{kDnnAttributeType} == CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE &&
              int{kDnnDescriptorType} == CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE &&
              int{kDnnNotSupported} == CUDNN_STATUS_NOT_SUPPORTED &&
              int{kDnnHostAllocationFailed} == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED &&
              int{kDnnDeviceAllocationFailed} == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED &&
              int{kDnnExecutionFailed} == CUDNN_STATUS_EXECUTION_FAILED);
static_assert(int{kDnnPointwise} == CUDNN_BACKEND_POINTWISE_DESCRIPTOR &&
              int{kDnnEngine} == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
              int{kDnnEngineConfig} == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR &&
              int{kDnnEngineHeuristics} == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR &&
              int{kDnnExecutionPlan} == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
              int{kDnnPointwiseOperation} == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
              int{kDnnOperationGraph} == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
              int{kDnnVariantPack} == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR &&
              int{kDnnTensor} == CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
              int{kDnnMatmul} == CUDNN_BACKEND_MATMUL_DESCRIPTOR &&
              int{kDnnMatmulOperation} == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR &&
              int{kDnnReduction} == CUDNN_BACKEND_REDUCTION_DESCRIPTOR &&
              int{kDnnReductionOperation} == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR &&
              int{kDnnReshapeOperation} == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR &&
              int{kDnnDeviceProperties} == CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
static_assert(int{kDnnOfHandle} == CUDNN_TYPE_HANDLE && int{kDnnOfDataType} == CUDNN_TYPE_DATA_TYPE &&
              int{kDnnOfBool} == CUDNN_TYPE_BOOLEAN && int{kDnnOfInt64} == CUDNN_TYPE_INT64 &&
              int{kDnnOfDouble} == CUDNN_TYPE_DOUBLE && int{kDnnOfPointer} == CUDNN_TYPE_VOID_PTR &&
              int{kDnnOfHeuristicMode} == CUDNN_TYPE_HEUR_MODE &&
              int{kDnnOfPointwiseMode} == CUDNN_TYPE_POINTWISE_MODE &&
              int{kDnnOfDescriptor} == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
              int{kDnnOfReduction} == CUDNN_TYPE_REDUCTION_OPERATOR_TYPE &&
              int{kDnnOfChar} == CUDNN_TYPE_CHAR);
static_assert(int{kDnnFloat32} == CUDNN_DATA_FLOAT && int{kDnnFloat16} == CUDNN_DATA_HALF &&
              int{kDnnInt32} == CUDNN_DATA_INT32 && int{kDnnBfloat16} == CUDNN_DATA_BFLOAT16 &&
              int{kDnnBool} == CUDNN_DATA_BOOLEAN);
static_assert(int{kDnnAdd} == CUDNN_POINTWISE_ADD && int{kDnnMultiply} == CUDNN_POINTWISE_MUL &&
              int{kDnnDivide} == CUDNN_POINTWISE_DIV && int{kDnnSubtract} == CUDNN_POINTWISE_SUB &&
              int{kDnnExp} == CUDNN_POINTWISE_EXP && int{kDnnLog} == CUDNN_POINTWISE_LOG &&
              int{kDnnIdentity} == CUDNN_POINTWISE_IDENTITY &&
              int{kDnnGreaterOrEqual} == CUDNN_POINTWISE_CMP_GE && int{kDnnLess} == CUDNN_POINTWISE_CMP_LT &&
              int{kDnnAnd} == CUDNN_POINTWISE_LOGICAL_AND && int{kDnnIndex} == CUDNN_POINTWISE_GEN_INDEX &&
              int{kDnnSelect} == CUDNN_POINTWISE_BINARY_SELECT && int{kDnnSum} == CUDNN_REDUCE_TENSOR_ADD &&
              int{kDnnMost} == CUDNN_REDUCE_TENSOR_MAX && int{kDnnHeuristicA} == CUDNN_HEUR_MODE_A);
static_assert(int{kDnnPointwiseModeOf} == CUDNN_ATTR_POINTWISE_MODE &&
              int{kDnnPointwisePrecision} == CUDNN_ATTR_POINTWISE_MATH_PREC &&
              int{kDnnPointwiseAxis} == CUDNN_ATTR_POINTWISE_AXIS &&
              int{kDnnHeuristicsMode} == CUDNN_ATTR_ENGINEHEUR_MODE &&
              int{kDnnHeuristicsGraph} == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH &&
              int{kDnnHeuristicsResults} == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
              int{kDnnHeuristicsDevice} == CUDNN_ATTR_ENGINEHEUR_DEVICEPROP &&
              int{kDnnPlanHandle} == CUDNN_ATTR_EXECUTION_PLAN_HANDLE &&
              int{kDnnPlanEngineConfig} == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG &&
              int{kDnnPlanWorkspaceBytes} == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
              int{kDnnPlanDevice} == CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP &&
              int{kDnnPointwiseOf} == CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR &&
              int{kDnnPointwiseX} == CUDNN_ATTR_OPERATION_POINTWISE_XDESC &&
              int{kDnnPointwiseB} == CUDNN_ATTR_OPERATION_POINTWISE_BDESC &&
              int{kDnnPointwiseY} == CUDNN_ATTR_OPERATION_POINTWISE_YDESC &&
              int{kDnnPointwiseT} == CUDNN_ATTR_OPERATION_POINTWISE_TDESC &&
              int{kDnnGraphHandle} == CUDNN_ATTR_OPERATIONGRAPH_HANDLE &&
              int{kDnnGraphOperations} == CUDNN_ATTR_OPERATIONGRAPH_OPS &&
              int{kDnnTensorAlignment} == CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT &&
              int{kDnnTensorType} == CUDNN_ATTR_TENSOR_DATA_TYPE &&
              int{kDnnTensorDimensions} == CUDNN_ATTR_TENSOR_DIMENSIONS &&
              int{kDnnTensorStrides} == CUDNN_ATTR_TENSOR_STRIDES &&
              int{kDnnTensorId} == CUDNN_ATTR_TENSOR_UNIQUE_ID &&
              int{kDnnTensorVirtual} == CUDNN_ATTR_TENSOR_IS_VIRTUAL &&
              int{kDnnTensorByValue} == CUDNN_ATTR_TENSOR_IS_BY_VALUE &&
              int{kDnnPackIds} == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS &&
              int{kDnnPackPointers} == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS &&
              int{kDnnPackWorkspace} == CUDNN_ATTR_VARIANT_PACK_WORKSPACE &&
              int{kDnnMatmulPrecision} == CUDNN_ATTR_MATMUL_COMP_TYPE &&
              int{kDnnMatmulPadding} == CUDNN_ATTR_MATMUL_PADDING_VALUE &&
              int{kDnnMatmulA} == CUDNN_ATTR_OPERATION_MATMUL_ADESC &&
              int{kDnnMatmulB} == CUDNN_ATTR_OPERATION_MATMUL_BDESC &&
              int{kDnnMatmulC} == CUDNN_ATTR_OPERATION_MATMUL_CDESC &&
              int{kDnnMatmulOf} == CUDNN_ATTR_OPERATION_MATMUL_DESC &&
              int{kDnnMatmulRows} == CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC &&
              int{kDnnMatmulColumns} == CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC &&
              int{kDnnMatmulSums} == CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC &&
              int{kDnnReductionModeOf} == CUDNN_ATTR_REDUCTION_OPERATOR &&
              int{kDnnReductionPrecision} == CUDNN_ATTR_REDUCTION_COMP_TYPE &&
              int{kDnnReductionX} == CUDNN_ATTR_OPERATION_REDUCTION_XDESC &&
              int{kDnnReductionY} == CUDNN_ATTR_OPERATION_REDUCTION_YDESC &&
              int{kDnnReductionOf} == CUDNN_ATTR_OPERATION_REDUCTION_DESC &&
              int{kDnnReshapeX} == CUDNN_ATTR_OPERATION_RESHAPE_XDESC &&
              int{kDnnReshapeY} == CUDNN_ATTR_OPERATION_RESHAPE_YDESC &&
              int{kDnnDeviceJson} == CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);

}  // namespace loom::cuda
#endif
