// A test asks the fake cuBLASLt by these functions, beyond the library's interface; dlsym finds them.
#pragma once

#include <cstdint>

extern "C" {
/// How often cublasLtMatmul or cublasLtMatmulAlgoGetHeuristic was called.
uint64_t fake_cublaslt_calls(const char* function);
/// From now on it answers this status to products with a pre-activation, for which an older library may have
/// no algorithm. 0: it has one.
void fake_cublaslt_refuse_aux(int status);
/// From now on a product with an epilogue takes so much longer.
void fake_cublaslt_slow_epilogues(int milliseconds);
}
