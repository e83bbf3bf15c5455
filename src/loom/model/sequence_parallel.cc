// Which rows, and whose gradients.
#include "model/sequence_parallel.h"

#include "model/split.h"

namespace loom::model {

bool is_summed(const Parameter& parameter, bool divides_rows) {
  if (parameter.part == Part::head_norm_weight) return true;
  // Biases of row-parallel layers are added to rows, but their gradients are made where a sublayer has all.
  return divides_rows && !is_cut(parameter) && !parameter.undivided &&
         parameter.part != Part::projection_bias && parameter.part != Part::down_bias;
}

}  // namespace loom::model
