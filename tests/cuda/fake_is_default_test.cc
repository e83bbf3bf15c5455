// The tests of this program run on the fake driver unless WEFT_CUDA_LIBRARY names another. Settings are read
// at their first use, which is after this.
#include <cstdlib>

namespace {

[[maybe_unused]] const int chosen = setenv("WEFT_CUDA_LIBRARY", WEFT_FAKE_CUDA, 0);
// Else the tests of streams that wait would be skipped where somebody has set these to something else.
[[maybe_unused]] const int connected = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
[[maybe_unused]] const int eager = setenv("CUDA_MODULE_LOADING", "EAGER", 1);

}  // namespace
