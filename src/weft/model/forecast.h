// Forecast: how long an algorithm takes on a cluster, simulated as exactly as can be afforded.
//
//   one node for all   plans and conditions are the same on every node: exact, and costs as much as one node
//   every rank         all ranks are simulated; of symmetric plans those of one node are kept. Exact
//   extrapolated       neither can be afforded: a line through smaller clusters (model/estimate.h)
//
// Thread safety: pure functions but for the clock.
#pragma once

#include "model/cluster.h"
#include "model/simulate.h"

namespace weft::model {

enum class Scope : uint8_t { one_node_for_all, every_rank, extrapolated };
const char* name_of(Scope scope);  // "one node for all", …

struct ForecastOptions {
  uint64_t most_steps = 60'000'000;  // of all ranks that are simulated
  bool streak = false;               // what a call takes in a long streak (Simulation::call_us), not alone
  bool in_place = false;             // SimulateOptions::in_place
  bool critical_path =
      false;  // of a call alone; keeps times of all steps, if that takes less than about 1 GB
};

struct Forecast {
  double us = 0;
  Scope scope = Scope::one_node_for_all;
  uint64_t steps = 0;               // simulated
  int calls = 1;                    // back-to-back calls that `simulation` is of
  double planned_s = 0, ran_s = 0;  // CPU time that making the plans and simulating them took
  bool has_critical_path = false;
  Simulation simulation;  // empty if extrapolated
};

/// Errors: the algorithm's reason if it does not fit; unsupported if the cluster's conditions require all
/// ranks and those take more steps than allowed; invalid_argument for send and recv.
Result<Forecast> forecast(const plan::Algorithm& algorithm, const plan::Request& request,
                          const Cluster& cluster, const plan::Limits& limits,
                          const ForecastOptions& options = {});

}  // namespace weft::model
