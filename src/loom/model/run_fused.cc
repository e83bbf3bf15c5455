// Two steps that one operator does.
#include "model/fusion.h"
#include "model/operands.h"

namespace loom::model {

template <typename T>
bool run_fused(const ops::FusedOperators<T>& op, const Operands<T>& first, const Operands<T>& second) {
  using A = acc_t<T>;
  const device::Context& context = first.context();
  const int64_t rows = first.rows(), in = first.step.in, out = first.step.out;
  const Part part = first.step.part, after = second.step.part;
  switch (fusion_of(first.step, second.step)) {
    case Fusion::residual_norm:
      op.residual_norm(context, first.dropout(), first.in(0), first.in(1), first.parameter(part),
                       first.out(0), second.parameter(after), second.parameter(bias_of(after)), second.out(0),
                       second.template out<A>(1), second.template out<A>(2), rows, in, first.spec.epsilon);
      return true;
    case Fusion::norm_gradient_dropout:
      op.norm_gradient_dropout(context, second.dropout(), first.in(0), first.parameter(part),
                               first.template in<A>(1), first.template in<A>(2), first.in(3), first.out(0),
                               first.step.adds, first.gradient(part), first.gradient(bias_of(part)),
                               second.out(0), rows, in);
      return true;
    case Fusion::linear_gelu:
      op.linear_gelu(context, first.in(0), first.parameter(part),
                     first.step.adds ? nullptr : first.parameter(bias_of(part)), first.out(0), second.out(0),
                     rows, in, out);
      return true;
    case Fusion::linear_input_gelu_gradient:
      op.linear_input_gelu_gradient(context, first.in(0), first.parameter(part), second.in(0), second.out(0),
                                    rows, in, out);
      return true;
    case Fusion::none: return false;
  }
  return false;
}

template bool run_fused<float>(const ops::FusedOperators<float>&, const Operands<float>&,
                               const Operands<float>&);
template bool run_fused<bf16>(const ops::FusedOperators<bf16>&, const Operands<bf16>&, const Operands<bf16>&);
template bool run_fused<fp16>(const ops::FusedOperators<fp16>&, const Operands<fp16>&, const Operands<fp16>&);
template bool run_fused<double>(const ops::FusedOperators<double>&, const Operands<double>&,
                                const Operands<double>&);

}  // namespace loom::model
