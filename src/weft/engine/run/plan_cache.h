// PlanCache: the plans that one communicator's calls use, and the questions about plans that were never made.
// The tuner chooses a plan's algorithm (model/tuner.h), its generator makes it, and the cache keeps it for
// equal calls.
//
// Thread safety: under the context's lock, but for request_for(), can(), choose_on() and streak_us_on().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "engine/run/call.h"
#include "engine/run/membership.h"
#include "engine/run/plan_tables.h"
#include "model/tuner.h"

namespace weft::engine {

class Fabric;

class PlanCache {
 public:
  /// For the ranks that this fabric connects. `strict`: reductions are bitwise reproducible. Pins are those
  /// of WEFT_ALGO, which is valid.
  PlanCache(const Fabric& fabric, const Membership& members, bool strict);

  /// What the ranks must agree on for a plan of a call.
  plan::Request request_for(const Call& call) const;

  /// The plan of a transfer of this rank to itself: one copy.
  std::shared_ptr<const PlanTables> make_self_copy(Call call) const;

  /// This rank's plan for a request in a streak of so many calls (CallStreak::expected()), on this machine.
  /// Valid until the next call.
  Result<const std::shared_ptr<const PlanTables>*> find_or_make(const plan::Request& request, int streak,
                                                                const model::Machine& machine);
  /// From now on these pins count instead of the setting's; on all ranks alike, between operations.
  void pin(const model::Pins& pins);

  /// How long the cost model expects such a call to take.
  Result<double> predict_us(const plan::Request& request, int streak, const model::Machine& machine) const;
  /// Whether an algorithm can do it here.
  bool can(const plan::Request& request, std::string_view algorithm) const;
  /// What the tuner would choose for it on any machine, with any pins.
  Result<model::Choice> choose_on(const model::Machine& machine, const plan::Request& request,
                                  const model::Pins& pins) const;
  /// How long it takes there in a long streak by an algorithm that can do it; 0 if nobody can say.
  double streak_us_on(const model::Machine& machine, const plan::Request& request,
                      std::string_view algorithm) const;

  /// What plans are made with, but for slices of another length where the tuner takes them.
  const plan::Limits& limits() const { return limits_; }

 private:
  /// What a plan was made for.
  struct Key {
    plan::Request request;
    int streak = 1;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  const std::shared_ptr<const PlanTables>& make_uneven(const plan::Request& request,
                                                       const model::Machine& machine);
  void clear();

  const topology::Layout layout_;
  const int rank_;
  const bool strict_;
  plan::Limits limits_;
  model::Pins pins_;
  std::unordered_map<Key, std::shared_ptr<const PlanTables>, KeyHash> plans_;
  std::unordered_map<Key, model::Estimates, KeyHash> estimates_;  // with a root, for streaks of any length
  size_t steps_ = 0;                                              // of all plans together
  Key last_key_;
  std::shared_ptr<const PlanTables> last_;
  std::shared_ptr<const PlanTables> uneven_;  // the plan of the last uneven request
};

}  // namespace weft::engine
