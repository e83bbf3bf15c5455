// weft_sim's page: a chart for each collective and number of nodes, or of one size over nodes.
#include "pages/page.h"

#include <map>
#include <set>

#include "model/tuner.h"
#include "sim/study.h"

namespace weft::sim {
namespace {

using pages::Json;

/// Series of what `value` says of rows, by algorithm, over what `over` says of them.
template <typename Over, typename Value>
Json series_of(const std::vector<const Row*>& rows, Over&& over, Value&& value) {
  std::map<std::string, std::map<double, double>> algorithms;
  for (const Row* row : rows) algorithms[std::string(row->algorithm->name)][over(*row)] = value(*row);
  Json series = Json::array();
  for (const auto& [name, values] : algorithms) {
    Json points = Json::array();
    for (const auto& [x, y] : values) points.push_back(Json::array({x, y}));
    series.push_back({{"name", name}, {"points", points}});
  }
  return series;
}

template <typename Over>
std::string charts_of(const std::string& title, const Json& axis, const std::vector<const Row*>& rows,
                      Over&& over) {
  const auto chart = [&](const char* label, const char* unit, auto&& value) {
    return pages::chart({{"title", title + ": " + label},
                         {"x", axis},
                         {"y", {{"label", label}, {"unit", unit}, {"log", true}}},
                         {"series", series_of(rows, over, value)}});
  };
  return chart("time", "µs", [](const Row& row) { return row.forecast.us; }) +
         chart("bus bandwidth", "GB/s", [](const Row& row) { return bus_bandwidth(row); });
}

}  // namespace

std::string page_of(const Study& study) {
  std::set<uint64_t> sizes;
  std::map<std::pair<std::string, int>, std::vector<const Row*>> by_nodes;
  std::map<std::string, std::vector<const Row*>> by_collective;
  const auto bytes = [](const Row& row) {
    return static_cast<double>(model::message_bytes(row.request, row.ranks));
  };
  for (const Row& row : study.rows) {
    if (!row.unfit.ok()) continue;
    const std::string collective = plan::name_of(row.request.collective);
    sizes.insert(static_cast<uint64_t>(bytes(row)));
    by_nodes[{collective, row.nodes}].push_back(&row);
    by_collective[collective].push_back(&row);
  }
  std::string body = fmt::format(
      "<h1>Simulated on {}</h1>\n<p class=\"soft\">{}{}</p>\n<div class=\"charts\">\n",
      pages::as_text(study.cluster.name), study.streak ? "Back-to-back calls." : "One call alone.",
      study.place.empty() ? "" : " " + study.place + ".");
  if (sizes.size() > 1) {
    for (const auto& [key, rows] : by_nodes)
      body += charts_of(fmt::format("{} on {} nodes", key.first, key.second),
                        {{"label", "size"}, {"log", true}, {"bytes", true}}, rows, bytes);
  } else {
    for (const auto& [collective, rows] : by_collective)
      body += charts_of(collective, {{"label", "nodes"}, {"log", true}}, rows,
                        [](const Row& row) { return static_cast<double>(row.nodes); });
  }
  return pages::page("Simulated by weft_sim", body + "</div>\n");
}

}  // namespace weft::sim
