// What weft_sim prints.
#include "model/tuner.h"
#include "sim/study.h"

namespace weft::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string conditions_text(const model::Conditions& conditions) {
  std::string text;
  if (conditions.fabric.nodes_per_leaf > 0) {
    text += fmt::format("switches: {} nodes a leaf, oversubscribed {:g} times\n",
                        conditions.fabric.nodes_per_leaf, conditions.fabric.oversubscription);
  }
  for (const auto& slow : conditions.slow_nodes) {
    text += fmt::format("node {} runs at {:g} of its speed\n", slow.node, slow.rate);
  }
  for (const auto& slow : conditions.slow_rails) {
    text += slow.rate == 0 ? fmt::format("rail {} of node {} is down\n", slow.rail, slow.node)
                           : fmt::format("rail {} of node {} runs at {:g} of its speed\n", slow.rail,
                                         slow.node, slow.rate);
  }
  for (const auto& incast : conditions.incasts) {
    text += fmt::format("{:g} other stream{} to node {}\n", incast.streams, incast.streams == 1 ? "" : "s",
                        incast.node);
  }
  return text;
}

bool same_cell(const Row& a, const Row& b) { return a.nodes == b.nodes && a.request == b.request; }

std::string row_text(const Row& row, double best_us, bool compares) {
  if (!row.unfit.ok()) {
    return fmt::format("{:>13} {:>8} {:>6} {}{:<19} {}\n", "-", "-", "-",
                       compares ? fmt::format("{:>8} ", "-") : "", row.algorithm->name, row.unfit.message());
  }
  const model::Forecast& f = row.forecast;
  const double rate = f.ran_s > 0 ? static_cast<double>(f.simulation.events) / f.ran_s / 1e6 : 0;
  const std::string cost =
      f.scope == model::Scope::extrapolated
          ? fmt::format("{:.2f} s", f.ran_s)
          : fmt::format("{} events in {:.2f} s ({:.1f} M/s)", f.simulation.events, f.ran_s, rate);
  return fmt::format(
      "{:>13.1f} {:>8.2f} {:>6.2f} {}{:<19} {:>9.1f}  {}, {}\n", f.us, bus_bandwidth(row), f.us / best_us,
      compares
          ? fmt::format("{:>8} ", row.healthy_us > 0 ? fmt::format("{:.2f}", f.us / row.healthy_us) : "-")
          : "",
      row.algorithm->name, f.simulation.longest_wait_us, model::name_of(f.scope), cost);
}

}  // namespace

std::string text_of(const Question& question, const Study& study) {
  const bool compares = !study.cluster.conditions.healthy();
  std::string text = fmt::format(
      "{}; slices of {}; {}{}{}\n{}", study.cluster.name, model::bytes_text(study.limits.slice_bytes),
      model::eager_text(study.limits, study.cluster.machine), study.streak ? "; back-to-back calls" : "",
      study.place.empty() ? "" : fmt::format("; {}", study.place), conditions_text(study.cluster.conditions));
  double best_us = 0;
  for (size_t i = 0; i < study.rows.size(); ++i) {
    const Row& row = study.rows[i];
    if (i == 0 || !same_cell(row, study.rows[i - 1])) {
      best_us = row.forecast.us;
      text += fmt::format("\n{} on {} rank{} of {} node{}\n{:>13} {:>8} {:>6} {}{:<19} {:>9}  {}\n",
                          model::to_string(row.request, row.ranks), row.ranks, row.ranks == 1 ? "" : "s",
                          row.nodes, row.nodes == 1 ? "" : "s", "predicted µs", "bus GB/s", "x best",
                          compares ? fmt::format("{:>8} ", "x usual") : "", "algorithm", "queued µs",
                          "simulated");
    }
    text += row_text(row, best_us, compares);
    if (question.why && row.unfit.ok() && row.forecast.has_critical_path) {
      text += fmt::format("              {}\n", model::to_string(row.forecast.simulation.critical));
    }
  }
  return text;
}

Json json_of(const Study& study) {
  Json json{{"cluster", study.cluster.name},
            {"ranks_per_node", study.cluster.ranks_per_node},
            {"machine", Json::parse(model::to_json(study.cluster.machine))},
            {"slice_bytes", study.limits.slice_bytes},
            {"eager_intra_bytes", study.limits.eager_intra_bytes},
            {"eager_inter_bytes", study.limits.eager_inter_bytes},
            {"calls", study.streak ? "streak" : "alone"},
            {"place", study.place.empty() ? Json() : Json(study.place)},
            {"rows", Json::array()}};
  for (const Row& row : study.rows) {
    const model::Forecast& f = row.forecast;
    Json one{{"collective", plan::name_of(row.request.collective)},
             {"bytes", model::message_bytes(row.request, row.ranks)},
             {"nodes", row.nodes},
             {"ranks", row.ranks},
             {"algorithm", row.algorithm->name}};
    if (!row.unfit.ok()) {
      one["unfit"] = row.unfit.message();
    } else {
      one["us"] = f.us;
      one["bus_gb_per_s"] = bus_bandwidth(row);
      if (row.healthy_us > 0) one["healthy_us"] = row.healthy_us;
      one["scope"] = model::name_of(f.scope);
      one["steps"] = f.steps;
      one["events"] = f.simulation.events;
      one["planned_s"] = f.planned_s;
      one["ran_s"] = f.ran_s;
      one["queued_at_receiver_us"] = f.simulation.longest_wait_us;
      one["inter_bytes"] = f.simulation.inter.bytes / static_cast<uint64_t>(f.calls);
      one["inter_messages"] = f.simulation.inter.messages / static_cast<uint64_t>(f.calls);
    }
    json["rows"].push_back(std::move(one));
  }
  return json;
}

}  // namespace weft::sim
