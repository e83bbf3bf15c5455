// What `loom plan` prints besides a plan's memory and times: how fast it is, comparisons, sweeps, JSON.
#pragma once

#include <loom/plan.h>

#include <string>
#include <vector>

namespace loom::command {

/// Lines of a plan: rates, memory against the device's, what is computed, what is exposed; and unless a
/// comparison follows, which collectives Weft does not plan.
void print_performance(const Plan& plan, bool alone);
/// A column an engine.
void print_comparison(const std::vector<Plan>& plans);
/// A line each.
void print_troubles(const std::vector<Trouble>& troubles);
/// A line for each number of nodes, with a bar; of each the engine's plan and perhaps the baseline's.
void print_sweep(const std::vector<std::vector<Plan>>& all, int ranks_per_node);

/// A page with charts of the same.
std::string html_of(const std::vector<std::vector<Plan>>& all, const Cluster& cluster);

/// {"cluster": …, "predictions": [{"nodes": …, "plans": [{…}]}], "what_if": […]}
std::string json_of(const std::vector<std::vector<Plan>>& all, const Cluster& cluster,
                    const std::vector<Trouble>& troubles = {});
/// The same of one plan, with "changes" and "tried".
std::string json_of(const Fitted& fitted, const Cluster& cluster);

}  // namespace loom::command
