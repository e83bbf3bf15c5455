// The part of the verifier that follows what tensor ranks exchange between the pieces of a unit: see
// verify.h. For the rest of the verifier, the pieces of a unit's work are one instruction again.
#pragma once

#include <vector>

#include "program/verify_result.h"

namespace loom::program {

/// Every sublayer multiplies all rows and every piece on rows gets sums of all ranks' summands; pieces come
/// in their order, none is missing; gradients of what every rank holds are summed once where they have to be.
ResultProblem check_pieces(const Job& job, const Program& program);

/// A program whose pieces are put together, without the exchanges between them.
struct Folded {
  Program program;
  std::vector<int> instruction;  // where each was, or the last of its pieces
};
Folded fold_pieces(const Program& program);

}  // namespace loom::program
