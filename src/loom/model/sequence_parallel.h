// Sequence parallelism: between the sublayers of blocks each of T tensor ranks has M / T of a microbatch's M
// rows, and not all of them. Norms, dropout and the residual look at one row at a time, so ranks share out
// their work and the memory of what they save (Korthikanti et al., "Reducing Activation Recomputation in
// Large Transformer Models", 2022). Rank t has rows [t · M/T, (t + 1) · M/T); T must divide M.
//
//   entering a sublayer  all-gather      own rows [M/T, C]     -> all rows [M, C]
//   leaving it           reduce-scatter  summands [M, C] of all ranks -> their sum's own rows [M/T, C]
//   gradients            all-reduce      of what is applied to rows (norms, positions, types): each rank has
//                                        the summand of its own rows. They are added up once a step, before
//                                        the gradient norm. Gradients of norms of heads are added up without
//                                        divided rows, too: each rank has the summand of its heads
//
// Backward has the same exchanges the other way round. Without the division every rank works on all rows,
// nothing is exchanged on entering, and a sublayer's summands are all-reduced. This file says which rows and
// parameters that concerns; recipes have the exchanges as steps.
//
// Thread safety: pure functions.
#pragma once

#include "model/pass.h"
#include "model/units.h"

namespace loom::model {

/// Of `rows` rows of a microbatch: how many this rank has between sublayers, and the first of them.
inline int64_t own_rows(const Share& share, int64_t rows) {
  return share.divides_rows ? rows / share.degree : rows;
}
inline int64_t first_own_row(const Share& share, int64_t rows) {
  return share.divides_rows ? own_rows(share, rows) * share.rank : 0;
}

/// Whether tensor ranks have summands of a parameter's gradient, which all of them hold whole: those of the
/// rows that each has between sublayers, or of its heads.
bool is_summed(const Parameter& parameter, bool divides_rows);

}  // namespace loom::model
