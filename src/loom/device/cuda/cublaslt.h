// cuBLASLt's C interface, as far as Loom uses it: a table of functions that is filled at run time. Types and
// constants are the library's, by value; a test compares them with cublasLt.h where there is one. No build
// needs the library, and none carries it.
//
// Thread safety: every function. A handle may be used by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/cuda/driver.h"

namespace loom::cuda {

// ---- The library's types

struct LtHandle;
struct LtMatmulDesc;
struct LtLayout;
struct LtPreference;
/// How a product is done: 64 bytes that may be kept, for the same library and the same device.
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

enum LtStatus : int {
  kLtSuccess = 0,
  kLtNotInitialized = 1,
  kLtAllocFailed = 3,
  kLtInvalidValue = 7,
  kLtArchMismatch = 8,
  kLtExecutionFailed = 13,
  kLtInternalError = 14,
  kLtNotSupported = 15,
};
enum LtType : int { kLtFloat32 = 0, kLtFloat16 = 2, kLtBfloat16 = 14 };
enum LtCompute : int { kLtComputeFloat32 = 68, kLtComputeTf32 = 77 };
enum LtProperty : int { kLtMajorVersion = 0, kLtMinorVersion = 1, kLtPatchLevel = 2 };

enum LtMatmulAttribute : int {
  kLtTransposeA = 3,
  kLtTransposeB = 4,
  kLtEpilogue = 7,
  kLtBiasPointer = 8,
  kLtAuxPointer = 11,
  kLtAuxLd = 12,
  kLtBiasType = 26,
};
enum LtOperation : int32_t { kLtNormal = 0, kLtTransposed = 1 };
enum LtEpilogueValue : uint32_t {
  kLtEpilogueDefault = 1,
  kLtEpilogueBias = 4,
  kLtEpilogueGeluAux = 32 | 128,
  kLtEpilogueGeluAuxBias = 32 | 128 | 4,
  kLtEpilogueDgelu = 64 | 128,
  kLtEpilogueBgradA = 256,
  kLtEpilogueBgradB = 512,
};
enum LtPreferenceAttribute : int {
  kLtMaxWorkspaceBytes = 1,
  kLtReductionSchemes = 3,
  kLtAlignmentA = 5,
  kLtAlignmentB = 6,
  kLtAlignmentC = 7,
  kLtAlignmentD = 8,
};
/// Of kLtReductionSchemes: no product is split along k; parts are added in the type of the arithmetic.
inline constexpr uint32_t kLtNoReduction = 0, kLtReductionInFp32 = 2;

// ---- The table

struct CublasLt {
  std::string library;  // where it was found
  int version[3] = {};  // major, minor, patch

  int (*get_property)(int property, int* value);
  const char* (*status_name)(int status);
  int (*create)(LtHandle** handle);
  int (*destroy)(LtHandle* handle);

  int (*matmul_desc_create)(LtMatmulDesc** desc, int compute, int scale_type);
  int (*matmul_desc_destroy)(LtMatmulDesc* desc);
  int (*matmul_desc_set)(LtMatmulDesc* desc, int attribute, const void* value, size_t bytes);
  int (*layout_create)(LtLayout** layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
  int (*layout_destroy)(LtLayout* layout);
  int (*preference_create)(LtPreference** preference);
  int (*preference_destroy)(LtPreference* preference);
  int (*preference_set)(LtPreference* preference, int attribute, const void* value, size_t bytes);

  int (*heuristic)(LtHandle* handle, LtMatmulDesc* desc, LtLayout* a, LtLayout* b, LtLayout* c, LtLayout* d,
                   LtPreference* preference, int asked, LtHeuristic* results, int* count);
  int (*algorithm_check)(LtHandle* handle, LtMatmulDesc* desc, LtLayout* a, LtLayout* b, LtLayout* c,
                         LtLayout* d, const LtAlgorithm* algorithm, LtHeuristic* result);
  int (*matmul)(LtHandle* handle, LtMatmulDesc* desc, const void* alpha, const void* a, LtLayout* a_layout,
                const void* b, LtLayout* b_layout, const void* beta, const void* c, LtLayout* c_layout,
                void* d, LtLayout* d_layout, const LtAlgorithm* algorithm, void* workspace,
                size_t workspace_bytes, StreamHandle* stream);
};

/// The major versions of the library whose constants are those above.
inline constexpr int kOldestCublasLt = 12, kYoungestCublasLt = 13;

/// Loads the library at the first call; every later call returns the result of the first.
/// LOOM_CUBLASLT_LIBRARY names it. Without that it is libcublasLt.so.13, which wants a driver for CUDA 13, or
/// .12. The loader's folders come first, then CUDA's folder, then the active Python environment's
/// (VIRTUAL_ENV, CONDA_PREFIX). Errors, each with a remedy: driver()'s; unsupported (no such library, another
/// major version, a function is missing).
Result<const CublasLt*> cublaslt();

/// ok, or a failure with the library's name for `status`: out_of_memory, unsupported, or system_error.
Status check_lt(int status, std::string_view what);

}  // namespace loom::cuda
