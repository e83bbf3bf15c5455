// loom_rotary_turns, loom_rotary_<type>: rotary.h.
#include "device/cuda/kernels/rotary.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

LOOM_KERNEL(loom_rotary_turns, RotaryTurnsArguments, kElementThreads) { rotary_turns(arguments); }
#define LOOM_ROTARY(name, T) \
  LOOM_KERNEL(loom_rotary_##name, RotaryArguments<T>, kElementThreads) { rotary(arguments); }
LOOM_EACH_TYPE(LOOM_ROTARY)

}  // namespace loom::cuda
