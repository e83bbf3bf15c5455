// A test asks the fake cuBLASLt by these functions, beyond the library's interface; dlsym finds them.
#pragma once

#include <cstdint>

extern "C" {
/// How often cublasLtMatmul or cublasLtMatmulAlgoGetHeuristic was called.
uint64_t fake_cublaslt_calls(const char* function);
}
