// loom_embedding_<type>, loom_position_<type>; of the gradients loom_count_digits, loom_find_places,
// loom_place_rows, loom_embedding_gradient_<type>, loom_embedding_gradient_runs_<type> and
// loom_position_gradient_<type>: embedding.h, token_order.h, embedding_gradient.h.
#include "device/cuda/kernels/embedding.h"
#include "device/cuda/kernels/embedding_gradient.h"
#include "device/cuda/kernels/token_order.h"
#include "device/cuda/kernels/types.h"

namespace loom::cuda {

LOOM_KERNEL(loom_count_digits, TokenOrderArguments, kTileRows) { count_digits(arguments); }
LOOM_KERNEL(loom_find_places, TokenOrderArguments, TokenOrderArguments::kScanThreads) {
  find_places(arguments);
}
LOOM_KERNEL(loom_place_rows, TokenOrderArguments, kTileRows) { place_rows(arguments); }

#define LOOM_EMBEDDING(name, T)                                                                        \
  LOOM_KERNEL(loom_embedding_##name, EmbeddingArguments<T>, kElementThreads) { embedding(arguments); } \
  LOOM_KERNEL(loom_position_##name, PositionArguments<T>, kElementThreads) { position(arguments); }    \
  /* Four blocks a multiprocessor: left to itself, ptxas aims at eight and spills on sm_100. */        \
  LOOM_KERNEL(loom_embedding_gradient_##name, EmbeddingGradientArguments<T>, kElementThreads, 4) {     \
    embedding_gradient(arguments);                                                                     \
  }                                                                                                    \
  LOOM_KERNEL(loom_embedding_gradient_runs_##name, EmbeddingGradientArguments<T>, kElementThreads) {   \
    embedding_gradient_runs(arguments);                                                                \
  }                                                                                                    \
  LOOM_KERNEL(loom_position_gradient_##name, PositionGradientArguments<T>, kElementThreads) {          \
    position_gradient(arguments);                                                                      \
  }
LOOM_EACH_TYPE(LOOM_EMBEDDING)

}  // namespace loom::cuda
