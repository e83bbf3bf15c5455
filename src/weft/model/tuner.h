// The tuner: which algorithm a request should use, with which limits, and why.
//
// Every rank asks by itself, and all must get the same answer. So the answer is a pure function of arguments
// that the ranks have agreed on: one rank's machine, the layout of the whole communicator, and equal
// settings.
//
// Thread safety: every function.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "model/cost.h"
#include "model/estimate.h"
#include "model/pins.h"
#include "plan/plan.h"
#include "topology/layout.h"

namespace weft::model {

/// An algorithm of the collective with one choice of limits.
struct Candidate {
  const plan::Algorithm* algorithm = nullptr;
  plan::Limits limits;
  Status unfit;         // why it cannot be used, or is not to be; ok: it could
  Estimate predicted;   // if it could: a call's mean over the streak that choose() was asked about
  double alone_us = 0;  // … and what it takes alone; without a root the same
};

struct Choice {
  const plan::Algorithm* algorithm = nullptr;
  plan::Limits limits;
  double predicted_us = 0;
  std::string why;                    // a sentence
  std::vector<Candidate> candidates;  // all that were considered: those that could by time, then the rest
};

/// The estimates of one request on one machine. A caller that chooses again for a longer streak keeps them,
/// since they are nearly all of the cost of a choice.
class Estimates {
 public:
  /// Null: not known yet.
  const Estimate* find(const plan::Algorithm& algorithm, uint64_t slice_bytes, Calls calls) const {
    for (const Known& known : known_)
      if (known.algorithm == &algorithm && known.slice_bytes == slice_bytes && known.calls == calls)
        return &known.estimate;
    return nullptr;
  }
  void add(const plan::Algorithm& algorithm, uint64_t slice_bytes, Calls calls, const Estimate& estimate) {
    known_.push_back({&algorithm, slice_bytes, calls, estimate});
  }
  void clear() { known_.clear(); }

 private:
  struct Known {
    const plan::Algorithm* algorithm;
    uint64_t slice_bytes;
    Calls calls;
    Estimate estimate;
  };
  std::vector<Known> known_;
};

/// Limits of a communicator's transports, as plans for such a machine have them: whether its transfers are
/// NIC-bound, and what goes without asking where messages meet, unless WEFT_EAGER_INTER_BYTES says that.
plan::Limits limits_on(const Machine& machine, plan::Limits limits);
/// The limits with which a job on such a machine plans, as far as they are known before the job exists: the
/// eager limits of its transports (transport/eager.h) or of the settings, and slices of the usual length.
/// Communicators get theirs from their open transports.
plan::Limits limits_for(const Machine& machine);
/// "eager up to 16 KiB inside a node, 64 KiB between nodes (tcp), 60 KiB to several at once".
std::string eager_text(const plan::Limits& limits, const Machine& machine);

/// The size of a request as the perf tools print it: the larger of what a rank gives and gets, the same for
/// all.
uint64_t message_bytes(const plan::Request& request, int ranks);

/// Chooses the algorithm with the least predicted time among those that fit and are not banned, or the pinned
/// one. `base` holds the transports' eager limits and the usual slice, which the tuner changes where that
/// pays and pins allow; whether transfers are NIC-bound the machine says. A pin that does not fit is logged
/// once in the process, and the next best is used. Errors: internal_error naming the request if nothing fits
/// (the library has an algorithm for everything), and invalid_setting if everything that fits is banned.
///
/// `streak` calls like this are expected one after the other. With a root the first call takes its time
/// alone, and each further one its time in a long streak. The mean counts. The choice for one call stays
/// unless another saves 18 % of its mean. Without a root a streak changes nothing. `known` holds estimates of
/// the same machine, request, layout and eager limits; new ones join it.
Result<Choice> choose(const Machine& machine, const plan::Request& request, const topology::Layout& layout,
                      const plan::Limits& base, const Pins& pins, int streak = 1, Estimates* known = nullptr);

/// "AllReduce of 4 MiB (1048576 × 4 bytes)".
std::string to_string(const plan::Request& request, int ranks);

}  // namespace weft::model
