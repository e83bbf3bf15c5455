// How long one algorithm would take: by simulating it, or by simulating less of it where that would take
// too long.
//
// Where plans are the same on every node, one node stands for all (model/symmetry.h), and all ranks of
// large communicators are simulated. Else two things make a simulation long, and time is a straight line
// over both:
//
//   long messages   They have many slices, and a pipeline takes the time of all bytes and that of one slice
//                   to fill it. Two simulations with longer slices give the line over the slice's length.
//   many ranks      A plan whose steps grow with the number of ranks takes time that grows with them. Two
//                   smaller communicators give the line over a rank's number of steps. Plans that grow like
//                   log n lie on such a line too, and are simulated in full up to hundreds of ranks.
//
// A call with a root is estimated alone or in a streak: ranks that are done go on to the next call. A tree
// has the longer latency and less work than a star. Without a root every rank waits for all, so a call in a
// streak takes its time alone, unless ranks take turns on cores.
#pragma once

#include "model/simulate.h"

namespace weft::model {

/// What is estimated: one call alone, until its last rank is done, or a call of a long streak
/// (Simulation::call_us).
enum class Calls : uint8_t { alone, streak };

/// Whether programs mostly call the collective with one buffer. Then it is estimated without the copy from
/// one buffer to the other.
constexpr bool mostly_in_place(plan::Collective collective) {
  return collective == plan::Collective::broadcast;
}

struct Estimate {
  double us = 0;
  bool simulated = true;      // false: a formula (point to point)
  bool fewer_slices = false;  // extrapolated from shorter messages
  bool fewer_ranks = false;   // extrapolated from smaller communicators
};

/// "simulated", "simulated with fewer slices and ranks", "alpha + bytes / rate".
const char* method_of(const Estimate& estimate);

/// Predicts `algorithm`, which must fit. The number of simulated steps is bounded, growing with the number of
/// ranks up to a limit. Uses +, −, × and / on doubles only, so that every rank comes to the same bits.
/// `in_place` as SimulateOptions says; nothing: as programs mostly call it.
Result<Estimate> estimate(const plan::Algorithm& algorithm, const plan::Request& request,
                          const topology::Layout& layout, const Machine& machine, const plan::Limits& limits,
                          Calls calls, std::optional<bool> in_place = {});

}  // namespace weft::model
