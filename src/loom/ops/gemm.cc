// oneDNN's sgemm, on the calling thread only, and plain loops for fp64.
#include "ops/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <limits>

namespace loom::ops {
namespace {

/// oneDNN shares its work with OpenMP's threads; our workers already share it. The number belongs to the
/// calling thread and is given back, because it may be a program's own.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }

 private:
  int before_;
};

}  // namespace

void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  const OneThread guard;
  const dnnl_status_t status = dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', m, n, k, 1.0f,
                                          a, lda, b, ldb, beta, c, ldc);
  if (status == dnnl_success) return;
  // No memory for its scratch, since sizes and strides are right. Operators report nothing: a loss that is no
  // number ends the step before anything is changed.
  for (int64_t row = 0; row < m; ++row)
    std::fill_n(c + row * ldc, n, std::numeric_limits<float>::quiet_NaN());
}

void limit_products(InstructionSet set) {
  (void)dnnl_set_max_cpu_isa(set >= InstructionSet::avx512 ? dnnl_cpu_isa_avx512_core
                             : set == InstructionSet::avx2 ? dnnl_cpu_isa_avx2
                                                           : dnnl_cpu_isa_sse41);
}

InstructionSet instruction_set_of_products() {
  const int used = dnnl_get_effective_cpu_isa();
  const auto has = [&](dnnl_cpu_isa_t isa) { return (used & isa) == isa; };
  if (has(dnnl_cpu_isa_avx512_core)) return InstructionSet::avx512;
  return has(dnnl_cpu_isa_avx2) ? InstructionSet::avx2 : InstructionSet::baseline;
}

void prepare_thread() {
  const float one = 1;
  float product = 0;
  gemm(false, false, 1, 1, 1, &one, 1, &one, 1, 0.0f, &product, 1);
}

void gemm(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,
          const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i) {
    double* row = c + i * ldc;
    for (int64_t j = 0; j < n; ++j) row[j] = beta == 0 ? 0 : beta * row[j];
    for (int64_t l = 0; l < k; ++l) {
      const double x = a_transposed ? a[l * lda + i] : a[i * lda + l];
      for (int64_t j = 0; j < n; ++j) row[j] += x * (b_transposed ? b[j * ldb + l] : b[l * ldb + j]);
    }
  }
}

}  // namespace loom::ops
