#include "loom/device/emulated_kernels.h"

#include "loom/device/emulated_launches.h"
#include "loom/device/fakes.h"

namespace loom::testing {

void add_emulated_kernels(unsigned seed) { add_emulated_kernels_by(FakeDriver().add_kernel, seed); }

}  // namespace loom::testing
