// Forecasts of collectives on described clusters (weft/weft_forecast.h).
#include <algorithm>

#include "api/handles.h"
#include "model/cluster.h"
#include "model/pins.h"
#include "model/tuner.h"
#include "weft/weft_forecast.h"

using namespace weft;
using namespace weft::api;

namespace {

Result<double> forecast_us(const char* description, const char* collective, size_t bytes, int nodes,
                           int ranks_per_node, double interfaces) {
  if (!description || !collective)
    return fail(Code::invalid_pointer, "{} is NULL, must be a text", description ? "collective" : "cluster");
  if (bytes == 0) return fail(Code::invalid_argument, "bytes is 0, must be at least 1");
  if (!(interfaces > 0 && interfaces <= 1))
    return fail(Code::invalid_argument, "interfaces is {:g}, must be above 0 and at most 1", interfaces);
  Result<model::Cluster> read = model::cluster_from_json(description);
  if (!read.ok()) return read.status();
  model::Cluster cluster = read.take();
  cluster.nodes = nodes;
  cluster.ranks_per_node = ranks_per_node;
  cluster.conditions = {};  // the tuner knows none
  cluster.machine.nic_bytes_per_us *= interfaces;
  cluster.machine.nic_message_us /= interfaces;
  WEFT_TRY(model::check_cluster(cluster));
  const Result<plan::Collective> kind = model::parse_collective(collective);
  if (!kind.ok()) return kind.status();
  if (plan::is_transfer(*kind))
    return fail(Code::invalid_argument, "{} is between two ranks, must be a collective of all", collective);
  plan::Request request{.collective = *kind, .count = 1, .element_bytes = 1};
  const uint64_t parts = model::message_bytes(request, nodes * ranks_per_node);
  request.element_bytes = 4;
  request.count = std::max<uint64_t>(1, (bytes + 4 * parts - 1) / (4 * parts));
  const auto layout = topology::Layout::blocks(nodes, ranks_per_node);
  const Result<model::Choice> choice =
      model::choose(cluster.machine, request, layout, model::limits_for(cluster.machine), model::Pins{}, 1);
  if (!choice.ok()) return choice.status();
  return choice->predicted_us;
}

}  // namespace

weftResult_t weftForecastCollective(const char* cluster, const char* collective, size_t bytes, int nodes,
                                    int ranksPerNode, double interfaces, double* microseconds) {
  if (!microseconds)
    return report(fail(Code::invalid_pointer, "microseconds is NULL, must point to a double").in(__func__));
  const Result<double> us = forecast_us(cluster, collective, bytes, nodes, ranksPerNode, interfaces);
  if (!us.ok()) return report(us.status().in(__func__));
  *microseconds = *us;
  return weftSuccess;
}
