// What a test asks the fake cuBLASLt beyond the library's interface; found with dlsym.
#pragma once

#include <cstdint>

extern "C" {
/// How often cublasLtMatmul or cublasLtMatmulAlgoGetHeuristic was called.
uint64_t fake_cublaslt_calls(const char* function);
}
