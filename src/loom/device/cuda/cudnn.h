// cuDNN's graph interface, as far as Loom uses it: a table of functions that is filled at run time, and the
// library's constants by value; a test compares them with cudnn_graph.h where there is one. No build needs
// the library, and none carries it.
//
// Thread safety: every function. A handle is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/cuda/driver.h"

namespace loom::cuda {

// ---- The library's types

struct DnnHandle;
/// All of a graph is made of these: a tensor, an operation, a plan.
using DnnDescriptor = void*;

enum DnnStatus : int {
  kDnnSuccess = 0,
  kDnnNotInitialized = 1001,
  kDnnBadParameter = 2000,
  kDnnNullPointer = 2002,
  kDnnMisalignedPointer = 2003,
  kDnnNotFinalized = 2004,
  kDnnAttributeType = 2010,
  kDnnDescriptorType = 2012,
  kDnnNotSupported = 3000,
  kDnnHostAllocationFailed = 4003,
  kDnnDeviceAllocationFailed = 4004,
  kDnnExecutionFailed = 5000,
};
/// Statuses come in thousands: each is of the kind of its first.
constexpr bool is_unsupported(int status) { return status / 1000 == kDnnNotSupported / 1000; }

enum DnnDescriptorType : int {
  kDnnPointwise = 0,
  kDnnEngine = 2,
  kDnnEngineConfig = 3,
  kDnnEngineHeuristics = 4,
  kDnnExecutionPlan = 5,
  kDnnPointwiseOperation = 13,
  kDnnOperationGraph = 15,
  kDnnVariantPack = 16,
  kDnnTensor = 17,
  kDnnMatmul = 18,
  kDnnMatmulOperation = 19,
  kDnnReduction = 21,
  kDnnReductionOperation = 22,
  kDnnReshapeOperation = 31,
  kDnnDeviceProperties = 38,
};

/// Types of attributes' values.
enum DnnValue : int {
  kDnnOfHandle = 0,
  kDnnOfDataType = 1,
  kDnnOfBool = 2,
  kDnnOfInt64 = 3,
  kDnnOfDouble = 5,
  kDnnOfPointer = 6,
  kDnnOfHeuristicMode = 8,
  kDnnOfPointwiseMode = 14,
  kDnnOfDescriptor = 15,
  kDnnOfReduction = 18,
  kDnnOfChar = 24,
};

enum DnnType : int {
  kDnnFloat32 = 0,
  kDnnFloat16 = 2,
  kDnnInt32 = 4,
  kDnnBfloat16 = 9,
  kDnnBool = 11,
};

enum DnnPointwiseMode : int {
  kDnnAdd = 0,
  kDnnMultiply = 1,
  kDnnDivide = 6,
  kDnnSubtract = 9,
  kDnnExp = 13,
  kDnnLog = 15,
  kDnnIdentity = 21,
  kDnnGreaterOrEqual = 303,
  kDnnLess = 304,
  kDnnAnd = 400,
  kDnnIndex = 501,
  kDnnSelect = 601,
};
enum DnnReductionMode : int { kDnnSum = 0, kDnnMost = 3 };
inline constexpr int kDnnHeuristicA = 3;

enum DnnAttribute : int {
  kDnnPointwiseModeOf = 0,
  kDnnPointwisePrecision = 1,
  kDnnPointwiseAxis = 9,
  kDnnHeuristicsMode = 200,
  kDnnHeuristicsGraph = 201,
  kDnnHeuristicsResults = 202,
  kDnnHeuristicsDevice = 204,
  kDnnPlanHandle = 400,
  kDnnPlanEngineConfig = 401,
  kDnnPlanWorkspaceBytes = 402,
  kDnnPlanDevice = 407,
  kDnnPointwiseOf = 750,
  kDnnPointwiseX = 751,
  kDnnPointwiseB = 752,
  kDnnPointwiseY = 753,
  kDnnPointwiseT = 758,
  kDnnGraphHandle = 800,
  kDnnGraphOperations = 801,
  kDnnTensorAlignment = 900,
  kDnnTensorType = 901,
  kDnnTensorDimensions = 902,
  kDnnTensorStrides = 903,
  kDnnTensorId = 906,
  kDnnTensorVirtual = 907,
  kDnnTensorByValue = 908,
  kDnnPackIds = 1000,
  kDnnPackPointers = 1001,
  kDnnPackWorkspace = 1003,
  kDnnMatmulPrecision = 1500,
  kDnnMatmulPadding = 1503,
  kDnnMatmulA = 1520,
  kDnnMatmulB = 1521,
  kDnnMatmulC = 1522,
  kDnnMatmulOf = 1523,
  kDnnMatmulRows = 1525,
  kDnnMatmulColumns = 1526,
  kDnnMatmulSums = 1527,
  kDnnReductionModeOf = 1600,
  kDnnReductionPrecision = 1601,
  kDnnReductionX = 1610,
  kDnnReductionY = 1611,
  kDnnReductionOf = 1612,
  kDnnReshapeX = 2200,
  kDnnReshapeY = 2201,
  kDnnDeviceJson = 2702,
};

// ---- The table

struct Cudnn {
  std::string library;  // where it was found
  int version[3] = {};  // major, minor, patch
  int cuda_major = 0;   // of the CUDA that it is for

  size_t (*get_version)();
  size_t (*get_cudart_version)();
  const char* (*error_string)(int status);
  void (*last_error)(char* text, size_t bytes);
  int (*create)(DnnHandle** handle);
  int (*destroy)(DnnHandle* handle);
  int (*set_stream)(DnnHandle* handle, StreamHandle* stream);

  int (*descriptor_create)(int type, DnnDescriptor* descriptor);
  int (*descriptor_destroy)(DnnDescriptor descriptor);
  int (*descriptor_finalize)(DnnDescriptor descriptor);
  int (*attribute_set)(DnnDescriptor descriptor, int attribute, int type, int64_t count, const void* values);
  int (*attribute_get)(DnnDescriptor descriptor, int attribute, int type, int64_t asked, int64_t* count,
                       void* values);
  int (*execute)(DnnHandle* handle, DnnDescriptor plan, DnnDescriptor pack);
};

/// The versions whose constants are those above, and whose attention masks with -∞.
inline constexpr int kCudnnMajor = 9, kOldestCudnnMinor = 10;

/// Loads the library at the first call; every later call returns the result of the first.
/// LOOM_CUDNN_LIBRARY names it. Without that it is libcudnn.so.9 of the places that library.h names. It loads
/// cuBLASLt before, for cuDNN ends the process that has none. Errors, each with a remedy: cublaslt()'s;
/// unsupported (no such library, another version, another CUDA than cuBLASLt's, a function is missing).
Result<const Cudnn*> cudnn();

/// ok, or a failure with the library's words for `status`: out_of_memory, unsupported, or system_error.
Status check_dnn(int status, std::string_view what);

}  // namespace loom::cuda
