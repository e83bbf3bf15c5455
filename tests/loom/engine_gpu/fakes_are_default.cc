// The tests of this program run on the fake driver, cuBLASLt and cuDNN unless the environment names others.
// Settings are read at their first use, which is after this.
#include <cstdlib>

namespace {

[[maybe_unused]] const int driver_chosen = setenv("WEFT_CUDA_LIBRARY", WEFT_FAKE_CUDA, 0);
[[maybe_unused]] const int cublaslt_chosen = setenv("LOOM_CUBLASLT_LIBRARY", LOOM_FAKE_CUBLASLT, 0);
[[maybe_unused]] const int cudnn_chosen = setenv("LOOM_CUDNN_LIBRARY", LOOM_FAKE_CUDNN, 0);
// With others, Weft would not let streams wait for a CPU.
[[maybe_unused]] const int connected = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
[[maybe_unused]] const int eager = setenv("CUDA_MODULE_LOADING", "EAGER", 1);

}  // namespace
