// The tests of this program run on the fake driver unless WEFT_CUDA_LIBRARY names another. Settings are read
// at their first use, which is after this.
#include <cstdlib>

namespace {

[[maybe_unused]] const int chosen = setenv("WEFT_CUDA_LIBRARY", WEFT_FAKE_CUDA, 0);

}  // namespace
