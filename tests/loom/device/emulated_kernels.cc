#include "loom/device/emulated_kernels.h"

#include "loom/device/emulated_launches.h"
#include "loom/device/fakes.h"

namespace loom::testing {

void add_emulated_kernels(unsigned seed) {
  if (const FakeDriver driver; driver.is_fake()) add_emulated_kernels_by(driver.add_kernel, seed);
}

}  // namespace loom::testing
