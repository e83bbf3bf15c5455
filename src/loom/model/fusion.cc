#include "model/fusion.h"

namespace loom::model {

Fusion fusion_of(const Step& first, const Step& second) {
  const int made = first.writes[0];
  if (first.rows != second.rows || first.counted != second.counted || made < 0) return Fusion::none;
  const bool gelu = second.activation == ops::Activation::gelu_tanh;
  switch (second.kernel) {
    case Kernel::norm:
      return first.kernel == Kernel::residual && second.reads[0] == made ? Fusion::residual_norm
                                                                         : Fusion::none;
    case Kernel::dropout:
      return first.kernel == Kernel::norm_gradient && second.reads[0] == made && second.writes[0] != made &&
                     second.probability > 0
                 ? Fusion::norm_gradient_dropout
                 : Fusion::none;
    case Kernel::activation:
      return gelu && first.kernel == Kernel::linear && second.reads[0] == made && second.writes[0] != made
                 ? Fusion::linear_gelu
                 : Fusion::none;
    case Kernel::activation_gradient:
      return gelu && first.kernel == Kernel::linear_input && second.reads[1] == made &&
                     second.writes[0] == made
                 ? Fusion::linear_input_gelu_gradient
                 : Fusion::none;
    default: return Fusion::none;
  }
}

}  // namespace loom::model
