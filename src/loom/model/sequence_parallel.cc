// Which rows, and whose gradients.
#include "model/sequence_parallel.h"

#include "model/split.h"

namespace loom::model {

int64_t picked_rows(const Share& share, int64_t targets) {
  const int64_t grain = share.divides_rows ? share.degree : 1;
  return (targets + grain - 1) / grain * grain;
}

bool is_of_rows(const Parameter& parameter) {
  // Biases of row-parallel layers are added to rows, but their gradients are made where a sublayer has all.
  return !is_cut(parameter) && !parameter.undivided && parameter.part != Part::projection_bias &&
         parameter.part != Part::down_bias;
}

}  // namespace loom::model
