// A matrix product as the fake cuBLASLt is asked for it, what it refuses, and how it computes it.
//
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/fake_driver/control.h"
#include "device/cuda/cublaslt.h"

// The library's opaque types.
namespace loom::cuda {
struct LtHandle {
  int unused = 0;
};
struct LtMatmulDesc {
  int compute = 0, scale_type = 0;
  int32_t transpose_a = 0, transpose_b = 0, bias_type = -1;
  uint32_t epilogue = kLtEpilogueDefault;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_ld = 0;
};
struct LtLayout {
  int type;
  int64_t rows, columns, ld;
};
struct LtPreference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};
}  // namespace loom::cuda

namespace fake_lt {

using namespace loom::cuda;

struct Problem {
  LtMatmulDesc desc;
  LtLayout a, b, c, d;
  float alpha = 1, beta = 0;
  int parts = 1;  // that each sum over k is made of

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.columns; }
  int64_t k() const { return desc.transpose_a ? a.rows : a.columns; }
  bool has(uint32_t epilogue) const { return desc.epilogue == epilogue; }
  bool adds_bias() const { return has(kLtEpilogueBias) || has(kLtEpilogueGeluAuxBias); }
  bool sums() const { return has(kLtEpilogueBgradA) || has(kLtEpilogueBgradB); }
  bool has_aux() const { return (desc.epilogue & 128) != 0; }
  int64_t bias_length() const { return has(kLtEpilogueBgradB) ? n() : m(); }

  /// kLtSuccess, or what the library returns for it, whatever the algorithm.
  int check() const;
  /// A number of all that an algorithm depends on.
  uint64_t hash() const;
};

/// The bytes of an element.
int64_t size_of(int type);
/// The bytes from a matrix's first element to its last.
uint64_t extent_of(const LtLayout& layout);

/// Computes on the host: A, B, D, the bias (or the sums), the pre-activation. The last two may be null.
void compute(const Problem& problem, const void* a, const void* b, void* d, void* bias, void* aux);

}  // namespace fake_lt
