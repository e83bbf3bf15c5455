// The kernels for what every CPU of the architecture has; CMakeLists.txt gives this file its flags.
#include "device/kernel_loops.h"

namespace weft::device {

extern const Kernels baseline_kernels;
constinit const Kernels baseline_kernels = make_kernels("baseline");

}  // namespace weft::device
