// The tests of this program run on the fake driver, cuBLASLt and cuDNN unless the environment names others.
#include <cstdlib>

namespace {

[[maybe_unused]] const int driver_chosen = setenv("WEFT_CUDA_LIBRARY", WEFT_FAKE_CUDA, 0);
[[maybe_unused]] const int cublaslt_chosen = setenv("LOOM_CUBLASLT_LIBRARY", LOOM_FAKE_CUBLASLT, 0);
[[maybe_unused]] const int cudnn_chosen = setenv("LOOM_CUDNN_LIBRARY", LOOM_FAKE_CUDNN, 0);

}  // namespace
