// Kernels of the head: rows that are picked and given back, logits, losses.
#include "model/operands.h"

namespace loom::model {
namespace {

/// Zeros behind the matrix that the embedding lends; all gradients are zeros where no row is picked. Of an
/// embedding itself all, unless it is added to.
template <typename T>
void clear(const Operands<T>& o) {
  using A = acc_t<T>;
  const bool head = o.unit.kind == UnitKind::head;
  const bool none = o.step.count >= 0 && *o.template at<int64_t>(o.step.count) == 0;
  if (head ? none : !o.bound.adds) std::fill_n(o.bound.gradient, o.unit.elements, A(0));
  if (!head || o.bound.tied_gradient == nullptr) return;
  const int64_t shared = none ? 0 : o.embedding.find(Part::token_embedding)->elements();
  std::fill(o.bound.tied_gradient + shared, o.bound.tied_gradient + o.embedding.elements, A(0));
}

/// The rows of the microbatch that the head computes, in their order, and the places of their targets and
/// losses. Several ranks have as many places each, so some stay empty, and a row that another rank has is
/// zeros here.
template <typename T>
void pick(const Operands<T>& o) {
  const Pass& pass = o.pass;
  const int32_t* const target = o.template in<int32_t>(1);
  int32_t *const rows = o.template out<int32_t>(0), *const places = o.template out<int32_t>(1),
                 *const targets = o.template out<int32_t>(2);
  T* const picked = o.out(5);
  const bool classifies = o.spec.task == Task::classification, one = pass.only_row >= 0;
  const int64_t most = o.step.rows, width = o.spec.width;
  int64_t count = 0;
  const auto take = [&](int64_t row, int64_t place) {
    rows[count] = static_cast<int32_t>(row);
    places[count] = static_cast<int32_t>(place);
    targets[count++] = one ? -1 : target[place];
  };
  if (one) take(classifies ? pooled_row(pass, pass.only_row / pass.tokens) : pass.only_row, pass.only_row);
  else if (classifies)
    for (int64_t sequence = 0; sequence < pass.batch; ++sequence)
      take(pooled_row(pass, sequence), sequence * pass.tokens);
  else
    for (int64_t row = 0; row < pass.rows() && count < most; ++row)
      if (target[row] >= 0) take(row, row);
  if (o.share.degree > 1)
    for (; count < most; ++count) rows[count] = places[count] = targets[count] = -1;
  *o.template out<int64_t>(4) = count;
  std::fill_n(o.template out<double>(3), count, 0.0);
  const int64_t own = own_rows(o.share, pass.rows()), first = first_own_row(o.share, pass.rows());
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = rows[r] - first;
    if (rows[r] >= 0 && row >= 0 && row < own) std::copy_n(o.in(0) + row * width, width, picked + r * width);
    else std::fill_n(picked + r * width, width, T{});
  }
}

/// Losses to the rows whose targets they are of; 0 elsewhere.
template <typename T>
void return_losses(const Operands<T>& o) {
  const double* const losses = o.template in<double>(0);
  const int32_t* const places = o.template in<int32_t>(1);
  double* const all = o.template out<double>(0);
  std::fill_n(all, o.pass.rows(), 0.0);
  for (int64_t r = 0; r < *o.template in<int64_t>(2); ++r)
    if (places[r] >= 0) all[places[r]] = losses[r];
}

template <typename T>
void give_back(const Operands<T>& o) {
  const int64_t width = o.spec.width, own = o.step.rows, first = first_own_row(o.share, o.pass.rows());
  const int32_t* const rows = o.template in<int32_t>(1);
  std::fill_n(o.out(0), own * width, T{});
  for (int64_t r = 0; r < *o.template in<int64_t>(2); ++r)
    if (const int64_t row = rows[r] - first; rows[r] >= 0 && row >= 0 && row < own)
      std::copy_n(o.in(0) + r * width, width, o.out(0) + row * width);
}

template <typename T>
void count_right(const Operands<T>& o) {
  const acc_t<T>* scores = o.template in<acc_t<T>>(0);
  for (int64_t r = 0; r < o.rows(); ++r, scores += o.step.out)
    if (std::max_element(scores, scores + o.step.out) - scores == o.template in<int32_t>(1)[o.step.first + r])
      ++*o.template out<double>(0);
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
      o.op.cross_entropy(o.workers(), o.template in<A>(0), targets(), o.template out<double>(1) + s.first, n,
                         s.out, scale);
      return true;
    case Kernel::split_begin:
      o.op.split_cross_entropy_begin(o.workers(), o.template in<A>(0), targets(), o.share.vocabulary,
                                     o.template out<A>(1), n);
      return true;
    case Kernel::split_finish:
      o.op.split_cross_entropy_finish(o.workers(), o.template in<A>(0), targets(), o.share.vocabulary,
                                      o.template in<A>(2), o.share.degree, o.share.rank,
                                      o.template out<double>(1) + s.first, n, scale);
      return true;
    case Kernel::count_right: count_right(o); return true;
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
      o.op.head_forward(o.workers(), o.in(0) + s.first * s.in, o.head_matrix(), o.parameter(Part::head_bias),
                        o.template out<A>(0), o.rows(), s.in, s.out);
      return true;
    case Kernel::logits_gradient:
      o.op.head_backward(o.workers(), o.template in<A>(0), o.in(1) + s.first * s.in, o.head_matrix(),
                         o.out(0) + s.first * s.in, o.head_matrix_gradient(), o.gradient(Part::head_bias),
                         s.first > 0, o.rows(), s.in, s.out);
      return true;
    case Kernel::return_losses: return_losses(o); return true;
    case Kernel::give_back: give_back(o); return true;
    default: return run_loss(o);
  }
}

template bool run_head<float>(const Operands<float>&);
template bool run_head<bf16>(const Operands<bf16>&);
template bool run_head<fp16>(const Operands<fp16>&);
template bool run_head<double>(const Operands<double>&);

}  // namespace loom::model
