// The tests of this program run on the fake driver unless the environment names another.
#include <cstdlib>

namespace {

[[maybe_unused]] const int driver_chosen = setenv("WEFT_CUDA_LIBRARY", WEFT_FAKE_CUDA, 0);

}  // namespace
