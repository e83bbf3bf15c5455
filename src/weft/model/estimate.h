// How long one algorithm would take: by simulation where that is cheap, and by simulating less where it is
// not. Private to model/.
#pragma once

#include "model/simulate.h"

namespace weft::model {

/// How an estimate came about.
enum class Method : uint8_t {
  simulated,  // the plans of all ranks, as they would be executed
  mirrored,   // one rank's plan (simulate_mirrored)
  formula,    // alpha + bytes × beta
};
const char* name_of(Method method);

struct Estimate {
  double us = 0;
  Method method = Method::simulated;
  bool extrapolated = false;  // from two shorter messages, in which the number of slices is bounded
};

/// Predicts `algorithm`, which must fit. Takes time that is bounded by a number of simulated steps, growing
/// slowly with the number of ranks. Uses +, −, × and / on doubles only, so that every rank comes to the same
/// bits.
Result<Estimate> estimate(const plan::Algorithm& algorithm, const plan::Request& request,
                          const topology::Layout& layout, const Machine& machine, const plan::Limits& limits);

}  // namespace weft::model
