#include "model/forecast.h"

#include <time.h>

#include "model/estimate.h"

namespace weft::model {
namespace {

using plan::Plan;
using topology::Layout;

constexpr uint64_t kMostTimedSteps = 20'000'000;
/// A plan takes some 120 bytes a step, where plans cannot be shared.
constexpr uint64_t kMostPlannedSteps = 40'000'000;

/// CPU time, so that other programs do not count.
double cpu_s() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

/// Which ranks would have to be simulated, and whether that can be afforded.
struct Cast {
  Symmetry symmetry = Symmetry::none;
  bool one_node = false;
  uint64_t steps = 0;
  bool affordable = true;
  std::vector<Plan> plans;
};

Cast cast_for(const plan::Algorithm& algorithm, const plan::Request& request, const Cluster& cluster,
              const Layout& layout, const plan::Limits& limits, uint64_t most_steps) {
  Cast cast;
  cast.symmetry = find_symmetry(algorithm, request, layout, limits);
  cast.one_node = cast.symmetry != Symmetry::none && cluster.conditions.all_nodes_alike() &&
                  !turns_of(cluster.machine, layout, 0).across_nodes;
  const int planned = cast.symmetry == Symmetry::none ? layout.ranks() : cluster.ranks_per_node;
  const auto times =
      cast.symmetry == Symmetry::none || cast.one_node ? 1 : static_cast<uint64_t>(cluster.nodes);
  const uint64_t most =
      cast.symmetry == Symmetry::none ? std::min(most_steps, kMostPlannedSteps) : most_steps;
  for (int rank = 0; rank < planned; ++rank) {
    cast.plans.push_back(algorithm.make(request, layout, limits, rank));
    cast.steps += cast.plans.back().steps.size() * times;
    // The first plans tell how long the rest are: rather give up before all memory is taken.
    const bool hopeless =
        rank >= 2 && cast.plans[1].steps.size() * static_cast<uint64_t>(planned) * times > 4 * most;
    cast.affordable = cast.steps <= most && !hopeless;
    if (!cast.affordable) return cast;
  }
  return cast;
}

}  // namespace

const char* name_of(Scope scope) {
  constexpr const char* names[] = {"one node for all", "every rank", "extrapolated"};
  return names[static_cast<int>(scope)];
}

Result<Forecast> forecast(const plan::Algorithm& algorithm, const plan::Request& request,
                          const Cluster& cluster, const plan::Limits& limits,
                          const ForecastOptions& options) {
  if (plan::is_transfer(request.collective)) {
    return fail(Code::invalid_argument, "{} is between two ranks, must be a collective of all",
                plan::name_of(request.collective));
  }
  const Layout layout = Layout::blocks(cluster.nodes, cluster.ranks_per_node);
  WEFT_TRY(algorithm.fits(request, layout, limits));
  Forecast result;
  const double planning_s = cpu_s();
  if (options.streak) result.calls = streak_calls(request, layout, cluster.machine, limits);
  Cast cast = cast_for(algorithm, request, cluster, layout, limits,
                       options.most_steps / static_cast<uint64_t>(result.calls));
  result.planned_s = cpu_s() - planning_s;
  const double running_s = cpu_s();
  if (!cast.affordable) {
    cast.plans = {};
    if (!cluster.conditions.all_nodes_alike()) {
      return fail(Code::unsupported,
                  "more than {} steps on {}, and its nodes are not alike, so that none can stand for others; "
                  "fewer nodes or longer slices would do",
                  options.most_steps, layout.to_string());
    }
    const Result<Estimate> estimated =
        estimate(algorithm, request, layout, cluster.machine, limits,
                 options.streak ? Calls::streak : Calls::alone, options.in_place);
    if (!estimated.ok()) return estimated.status();
    result.us = estimated->us;
    result.scope = Scope::extrapolated;
    result.ran_s = cpu_s() - running_s;
    return result;
  }
  result.steps = cast.steps * static_cast<uint64_t>(result.calls);
  result.scope = cast.one_node ? Scope::one_node_for_all : Scope::every_rank;
  result.has_critical_path = options.critical_path && !options.streak && cast.steps <= kMostTimedSteps;
  Result<Simulation> simulation = simulate(cast.plans, layout, cluster.machine, limits,
                                           {.keep_steps = result.has_critical_path,
                                            .calls = result.calls,
                                            .in_place = options.in_place,
                                            .symmetry = cast.symmetry,
                                            .one_node = cast.one_node,
                                            .conditions = cluster.conditions});
  if (!simulation.ok()) return simulation.status();
  result.simulation = simulation.take();
  result.simulation.steps = {};
  result.us = result.simulation.call_us;
  result.ran_s = cpu_s() - running_s;
  return result;
}

}  // namespace weft::model
