// loom_cross_entropy_<type>, loom_split_cross_entropy_{begin,finish}_<type>: cross_entropy.h and
// split_cross_entropy.h.
#include "device/cuda/kernels/cross_entropy.h"
#include "device/cuda/kernels/split_cross_entropy.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

#define LOOM_CROSS_ENTROPY(name, T)                                                                        \
  LOOM_KERNEL(loom_cross_entropy_##name, CrossEntropyArguments<T>, kLossThreads) {                         \
    cross_entropy(arguments);                                                                              \
  }                                                                                                        \
  LOOM_KERNEL(loom_split_cross_entropy_begin_##name, SplitCrossEntropyBeginArguments<T>, kLossThreads) {   \
    split_cross_entropy_begin(arguments);                                                                  \
  }                                                                                                        \
  LOOM_KERNEL(loom_split_cross_entropy_finish_##name, SplitCrossEntropyFinishArguments<T>, kLossThreads) { \
    split_cross_entropy_finish(arguments);                                                                 \
  }
LOOM_EACH_TYPE(LOOM_CROSS_ENTROPY)

}  // namespace loom::cuda
