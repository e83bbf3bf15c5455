// Which instruction of a program carries out a step of a unit.
#pragma once

#include <gtest/gtest.h>

#include "program/job.h"
#include "program/steps.h"

namespace loom::testing {

/// The number of the instruction with the nth step of that kernel, of a unit's pass through microbatch 0.
inline size_t find_step(const program::Job& job, const program::Program& program, program::Op op, int unit,
                        model::Kernel kernel, int nth = 0) {
  const model::Recipes recipes = job.recipes();
  const std::vector<model::Step>& steps =
      program::steps_of(program::recipe_of(recipes, unit, program.units, op), op);
  int step = -1;
  for (int k = 0; k < static_cast<int>(steps.size()) && step < 0; ++k)
    if (steps[static_cast<size_t>(k)].kernel == kernel && nth-- == 0) step = k;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const program::Instruction& it = program.instructions[i];
    const program::Op pass = program::is_exchange(it.op) ? it.pass : it.op;
    if (pass == op && it.unit == unit && it.microbatch <= 0 && it.first <= step && step < it.last) return i;
  }
  ADD_FAILURE() << "no such step of unit " << unit;
  return 0;
}

}  // namespace loom::testing
