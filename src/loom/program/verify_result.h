// The part of the verifier that follows values: see verify.h.
#pragma once

#include <string>

#include "program/job.h"
#include "program/program.h"

namespace loom::program {

struct ResultProblem {
  int instruction = -1;  // -1: none, or the program as a whole
  std::string sentence;  // empty: all is well
};

ResultProblem check_result(const Job& job, const Program& program);

}  // namespace loom::program
