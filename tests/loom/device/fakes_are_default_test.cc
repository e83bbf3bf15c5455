// The tests of this program run on the fake driver and the fake cuBLASLt unless the environment names others.
#include <cstdlib>

namespace {

[[maybe_unused]] const int driver_chosen = setenv("WEFT_CUDA_LIBRARY", WEFT_FAKE_CUDA, 0);
[[maybe_unused]] const int cublaslt_chosen = setenv("LOOM_CUBLASLT_LIBRARY", LOOM_FAKE_CUBLASLT, 0);

}  // namespace
