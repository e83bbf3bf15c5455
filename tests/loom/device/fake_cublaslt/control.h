// A test asks the fake cuBLASLt by these functions, beyond the library's interface; dlsym finds them.
#pragma once

#include <cstdint>

extern "C" {
/// How often cublasLtMatmul or cublasLtMatmulAlgoGetHeuristic was called.
uint64_t fake_cublaslt_calls(const char* function);
/// From now on (1) it has no algorithm for products with a pre-activation, as an older library may not.
void fake_cublaslt_refuse_aux(int refused);
}
