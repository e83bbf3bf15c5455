// Kernels that work on rows, and the products; the others have files of their own.
#include "model/runner.h"

#include "model/operands.h"
#include "model/split.h"

namespace loom::model {
namespace {

template <typename T>
void run_product(const Operands<T>& o) {
  const Step& s = o.step;
  const Part bias = bias_of(s.part);
  if (s.kernel == Kernel::linear)
    o.op.linear_forward(o.context(), o.in(0), o.parameter(s.part), s.adds ? nullptr : o.parameter(bias),
                        o.out(0), o.rows(), s.in, s.out);
  else if (s.kernel == Kernel::linear_input)
    o.op.linear_backward_input(o.context(), o.in(0), o.parameter(s.part), o.out(0), o.rows(), s.in, s.out);
  else
    o.op.linear_backward_weight(o.context(), o.in(0), o.in(1), o.gradient(s.part), o.gradient(bias), o.rows(),
                                s.in, s.out);
}

template <typename T>
void run_norm(const Operands<T>& o) {
  using A = acc_t<T>;
  const Part weight = o.step.part, bias = bias_of(weight);
  if (o.step.kernel == Kernel::norm)
    o.op.norm_forward(o.context(), o.in(0), o.parameter(weight), o.parameter(bias), o.out(0),
                      o.template out<A>(1), o.template out<A>(2), o.rows(), o.step.in, o.spec.epsilon);
  else
    o.op.norm_backward(o.context(), o.in(0), o.parameter(weight), o.template in<A>(1), o.template in<A>(2),
                       o.in(3), o.out(0), o.step.adds, o.gradient(weight), o.gradient(bias), o.rows(),
                       o.step.in);
}

template <typename T>
void run_step(const Operands<T>& o) {
  const Step& s = o.step;
  switch (s.kernel) {
    case Kernel::norm:
    case Kernel::norm_gradient: return run_norm(o);
    case Kernel::linear:
    case Kernel::linear_input:
    case Kernel::linear_weight: return run_product(o);
    case Kernel::activation:
      return o.op.activation_forward(o.context(), s.activation, o.in(0), o.out(0), o.elements());
    case Kernel::activation_gradient:
      return o.op.activation_backward(o.context(), s.activation, o.in(0), o.in(1), o.out(0), o.elements());
    case Kernel::gated:
      return o.op.gated_forward(o.context(), s.activation, o.in(0), o.out(0), o.rows(), s.in);
    case Kernel::gated_gradient:
      return o.op.gated_backward(o.context(), s.activation, o.in(0), o.in(1), o.out(0), o.rows(), s.in);
    case Kernel::residual:
      return o.op.add_dropout(o.context(), o.dropout(), o.in(0), o.in(1), o.parameter(s.part), o.out(0),
                              o.rows(), s.in);
    case Kernel::dropout: {
      const ops::Dropout dropout = o.dropout();
      if (dropout.probability > 0 || s.reads[0] != s.writes[0])
        o.op.dropout(o.context(), dropout, o.in(0), o.out(0), o.elements());
      return;
    }
    case Kernel::add:
      return o.op.add_dropout(o.context(), {}, o.in(0), o.in(1), nullptr, o.out(0), o.rows(), s.in);
    case Kernel::copy: return o.copy(o.in(0), o.out(0), o.elements());
    default: (void)(run_embedding(o) || run_attention(o) || run_head(o));
  }
}

}  // namespace

template <typename T>
Runner<T>::Runner(const ModelSpec& spec, const Share& share, const ops::Operators<T>& table,
                  const ops::FusedOperators<T>* fused)
    : spec_(spec),
      share_(share),
      table_(table),
      fused_(fused),
      embedding_(units_of(spec, {share.degree, share.rank}).front()) {}

template <typename T>
void Runner<T>::run(const Pass& pass, const Unit& unit, const Recipe& recipe, std::span<const Step> steps,
                    const Bound<T>& bound) const {
  const auto operands_of = [&](const Step& step) {
    return Operands<T>{spec_, share_, embedding_, pass, unit, recipe, bound, step, table_};
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const Operands<T> operands = operands_of(step);
    if (operands.rows() == 0 && step.counted && step.kernel != Kernel::clear && step.kernel != Kernel::pick)
      continue;
    const bool joins = fused_ != nullptr && step.fuses && i + 1 < steps.size();
    if (joins && run_fused(*fused_, operands, operands_of(steps[i + 1]))) ++i;
    else run_step(operands);
  }
}

template class Runner<float>;
template class Runner<bf16>;
template class Runner<fp16>;
template class Runner<double>;

}  // namespace loom::model
