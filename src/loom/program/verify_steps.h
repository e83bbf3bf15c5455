// The part of the verifier that follows the steps of units, and what tensor ranks exchange between them: see
// verify.h. For the rest of the verifier, a unit's pass is one instruction again.
#pragma once

#include <vector>

#include "program/verify_result.h"

namespace loom::program {

/// Proves five things. Every pass of a unit has all steps of its recipe, in their order. Each exchange stands
/// where the recipe has it, and exchanges the array that the recipe names. What a step leaves for a later one
/// is still there then. Gradients of what every rank holds are summed once, where they have to be.
/// Microbatches are read after they were copied to the device, and copied after tensor ranks have gathered
/// them.
ResultProblem check_steps(const Job& job, const Program& program);

/// A program whose passes are put together, without the exchanges between their steps.
struct Folded {
  Program program;
  std::vector<int> instruction;  // where each was, or the last of its parts
};
Folded fold_steps(const Job& job, const Program& program);

}  // namespace loom::program
