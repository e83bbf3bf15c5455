// Kernels of the head: rows that are picked and given back, logits, losses.
#include "model/operands.h"

namespace loom::model {
namespace {

/// Zeros between the parameters of a unit and behind them: they would count in the norm.
template <typename T>
void clear_gaps(const Operands<T>& o, int64_t elements) {
  int64_t covered = 0;
  for (const Parameter& parameter : o.unit.parameters) {
    o.clear(o.bound.gradient + covered, parameter.offset - covered);
    covered = parameter.offset + parameter.elements();
  }
  o.clear(o.bound.gradient + covered, elements - covered);
}

/// Zeros where operators write no gradient: in the gaps, and behind the matrix that the embedding lends.
/// Where no row is picked they write none. An embedding's gradient is added to, so all of it begins as zeros,
/// unless the caller has something there already.
template <typename T>
void clear(const Operands<T>& o) {
  if (o.step.writes[0] >= 0) return o.clear(o.template out<double>(0), 1);
  const UnitKind kind = o.unit.kind;
  const bool none = kind == UnitKind::head && o.step.counted && o.pass.arrays.count == 0;
  const int64_t elements = std::max(o.bound.gradient_elements, o.unit.elements);
  if (none || (kind == UnitKind::embedding && !o.bound.adds)) o.clear(o.bound.gradient, elements);
  else if (kind != UnitKind::embedding) clear_gaps(o, elements);
  if (kind != UnitKind::head || o.bound.tied_gradient == nullptr) return;
  const int64_t shared = none ? 0 : o.embedding.find(Part::token_embedding)->elements();
  o.clear(o.bound.tied_gradient + shared,
          std::max(o.bound.tied_gradient_elements, o.embedding.elements) - shared);
}

/// The rows of the microbatch that the head computes, one after the other. A row that another rank has is
/// zeros here.
template <typename T>
void pick(const Operands<T>& o) {
  if (o.step.writes[1] >= 0) o.clear(o.template out<double>(1), o.pass.rows());
  if (o.rows() > 0)
    o.op.gather_rows(o.context(), o.in(0), own_rows(o.share, o.pass.rows()), o.template in<int32_t>(1),
                     o.out(0), o.rows(), o.step.in);
}

/// From logits[rows, out] of some of the head's rows on.
template <typename T>
bool run_loss(const Operands<T>& o) {
  using A = acc_t<T>;
  const Step& s = o.step;
  const int64_t n = o.rows();
  const A scale = s.adds ? o.bound.scale : A(0);
  const auto targets = [&] { return o.template in<int32_t>(1) + s.first; };
  switch (s.kernel) {
    case Kernel::cross_entropy:
      o.op.cross_entropy(o.context(), o.template in<void>(0), targets(), o.template out<double>(1) + s.first,
                         n, s.out, scale);
      return true;
    case Kernel::split_begin:
      o.op.split_cross_entropy_begin(o.context(), o.template in<void>(0), targets(), o.share.vocabulary,
                                     o.template out<A>(1), n);
      return true;
    case Kernel::split_finish:
      o.op.split_cross_entropy_finish(o.context(), o.template in<void>(0), targets(), o.share.vocabulary,
                                      o.template in<A>(2), o.share.degree, o.share.rank,
                                      o.template out<double>(1) + s.first, n, scale);
      return true;
    case Kernel::count_right:
      o.op.count_right(o.context(), o.template in<void>(0), targets(), o.template out<double>(0), n, s.out);
      return true;
    case Kernel::sum_losses:
      o.op.sum(o.context(), o.template in<double>(0), o.template out<double>(0), n);
      return true;
    default: return false;
  }
}

}  // namespace

template <typename T>
bool run_head(const Operands<T>& o) {
  using A = acc_t<T>;
  const Step& s = o.step;
  switch (s.kernel) {
    case Kernel::clear: clear(o); return true;
    case Kernel::pick: pick(o); return true;
    case Kernel::logits:
      o.op.head_forward(o.context(), o.in(0) + s.first * s.in, o.head_matrix(), o.parameter(Part::head_bias),
                        o.template out<void>(0), o.rows(), s.in, s.out);
      return true;
    case Kernel::logits_gradient:
      o.op.head_backward(o.context(), o.template in<void>(0), o.in(1) + s.first * s.in, o.head_matrix(),
                         o.out(0) + s.first * s.in, o.head_matrix_gradient(), o.gradient(Part::head_bias),
                         s.first > 0, o.rows(), s.in, s.out);
      return true;
    case Kernel::read_logits:
      o.op.read_logits(o.context(), o.template in<void>(0), o.template out<A>(0), s.in);
      return true;
    case Kernel::give_back:
      o.op.gather_rows(o.context(), o.in(0), s.of_rows, o.template in<int32_t>(1), o.out(0), o.rows(), s.in);
      return true;
    default: return run_loss(o);
  }
}

template bool run_head<float>(const Operands<float>&);
template bool run_head<bf16>(const Operands<bf16>&);
template bool run_head<fp16>(const Operands<fp16>&);
template bool run_head<double>(const Operands<double>&);

}  // namespace loom::model
