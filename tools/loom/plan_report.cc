#include "loom/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "pages/page.h"

namespace loom::command {
namespace {

using Json = nlohmann::ordered_json;

double gib(double bytes) { return bytes / (1 << 30); }

/// Means over the stages of what is communication, with the time that ranks spend in it.
std::vector<Share> waited_for(const Plan& plan) {
  static const char* const kComputing[] = {"batch",    "forward",   "recompute",  "loss",
                                           "evaluate", "backward",  "accumulate", "squares",
                                           "norm",     "mean_loss", "optimizer",  "outside"};
  std::vector<Share> shares;
  for (const PlannedStage& stage : plan.stages)
    for (const Share& time : stage.times) {
      if (std::find(std::begin(kComputing), std::end(kComputing), time.name) != std::end(kComputing))
        continue;
      auto found = std::find_if(shares.begin(), shares.end(),
                                [&](const Share& share) { return share.name == time.name; });
      if (found == shares.end()) found = shares.insert(shares.end(), {time.name, 0});
      found->amount += time.amount / static_cast<double>(plan.stages.size());
    }
  return shares;
}

std::string shares_text(const std::vector<Share>& shares, double step_us) {
  std::string text;
  for (const Share& share : shares)
    if (share.amount >= 0.001 * step_us)
      text +=
          fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", share.name, share.amount / step_us * 100);
  return text.empty() ? "nothing" : text;
}

std::string memory_text(const Plan& plan) {
  const DeviceMemory& memory = plan.memory;
  std::string text = fmt::format("{:.1f} GiB", gib(memory.needed_bytes));
  if (memory.scores_bytes > 0) text += fmt::format(", {:.1f} of them scores", gib(memory.scores_bytes));
  if (memory.device_bytes == 0) return text;
  text += fmt::format(" of {:.1f}", gib(memory.device_bytes));
  if (!memory.fits())
    text += fmt::format(": does not fit, {:.1f} GiB too many; --fit searches what does",
                        gib(memory.needed_bytes - memory.device_bytes));
  return text;
}

Json json_of(const Plan& plan) {
  const auto shares = [](const std::vector<Share>& all) {
    Json json = Json::object();
    for (const Share& share : all) json[share.name + "_seconds"] = share.amount / 1e6;
    return json;
  };
  const Performance& performance = plan.performance;
  const DeviceMemory& memory = plan.memory;
  return {{"engine", plan.assumptions.engine},
          {"attention", plan.assumptions.attention},
          {"collectives", plan.collectives},
          {"unplanned", plan.unplanned},
          {"parameters", plan.parameters},
          {"ranks", plan.ranks},
          {"degree", plan.degree},
          {"microbatches", plan.microbatches},
          {"batch", plan.batch},
          {"tokens", plan.tokens},
          {"step_seconds", plan.step_us / 1e6},
          {"computing_seconds", plan.compute_us / 1e6},
          {"exposed_seconds", plan.exposed_us / 1e6},
          {"bubble", plan.bubble},
          {"samples_per_second", performance.samples_per_second},
          {"tokens_per_second", performance.tokens_per_second},
          {"tflops", performance.published_flops / 1e12},
          {"mfu", performance.mfu},
          {"hfu", performance.hfu},
          {"computing", shares(plan.computing)},
          {"exposed", shares(waited_for(plan))},
          {"memory",
           {{"needed_bytes", memory.needed_bytes},
            {"scores_bytes", memory.scores_bytes},
            {"device_bytes", memory.device_bytes},
            {"fits", memory.fits()}}}};
}

/// Each collective that Weft does not plan, once, and why.
void print_unplanned(const std::vector<Plan>& plans) {
  std::set<std::string> told;
  for (const Plan& plan : plans)
    for (const std::string& reason : plan.unplanned)
      if (told.insert(reason).second)
        fmt::print("by the formula  {}, since Weft's simulator refuses it\n", reason);
}

}  // namespace

void print_performance(const Plan& plan, bool alone) {
  const Performance& performance = plan.performance;
  fmt::print("samples/s       {:.4g}\n", performance.samples_per_second);
  fmt::print("TFLOP/s         {:.1f} a rank as published ({} · parameters · tokens)",
             performance.published_flops / 1e12,
             performance.published_flops > 0
                 ? std::lround(performance.published_flops * plan.ranks /
                               static_cast<double>(plan.parameters) / performance.tokens_per_second)
                 : 0);
  if (performance.mfu > 0)
    fmt::print("; MFU {:.1f} %, HFU {:.1f} %", performance.mfu * 100, performance.hfu * 100);
  fmt::print("\ndevice memory   {}\n", memory_text(plan));
  fmt::print("computing       {}\n", shares_text(plan.computing, plan.step_us));
  fmt::print("exposed         {}; collectives by {}\n", shares_text(waited_for(plan), plan.step_us),
             plan.collectives);
  if (alone) print_unplanned({plan});
}

void print_comparison(const std::vector<Plan>& plans) {
  const auto row = [&](const char* name, auto&& cell) {
    fmt::print("{:<22}", name);
    for (const Plan& plan : plans) fmt::print("{:>20}", cell(plan));
    fmt::print("\n");
  };
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  fmt::print("\n");
  row("engine", [](const Plan& plan) { return plan.assumptions.engine; });
  row("seconds a step", [&](const Plan& plan) { return number(plan.step_us / 1e6); });
  row("samples/s", [&](const Plan& plan) { return number(plan.performance.samples_per_second); });
  row("TFLOP/s a rank", [&](const Plan& plan) { return number(plan.performance.published_flops / 1e12); });
  row("MFU, %", [&](const Plan& plan) { return number(plan.performance.mfu * 100); });
  row("HFU, %", [&](const Plan& plan) { return number(plan.performance.hfu * 100); });
  row("GiB a rank", [&](const Plan& plan) { return number(gib(plan.memory.needed_bytes)); });
  row("exposed, %", [&](const Plan& plan) { return number(plan.exposed_us / plan.step_us * 100); });
  for (const Plan& plan : plans)
    fmt::print("{}: exposed {}; collectives by {}\n", plan.assumptions.engine,
               shares_text(waited_for(plan), plan.step_us), plan.collectives);
  print_unplanned(plans);
  const double faster = plans[1].step_us / plans[0].step_us - 1;
  fmt::print("{} is {:.1f} % {} than {}\n", plans[0].assumptions.engine, std::abs(faster) * 100,
             faster < 0 ? "slower" : "faster", plans[1].assumptions.engine);
}

void print_troubles(const std::vector<Trouble>& troubles) {
  if (troubles.empty()) return;
  fmt::print("\n");
  for (const Trouble& trouble : troubles) {
    fmt::print("{:<52} {:>8.3f} s a step, {:+.1f} %{}", trouble.what, trouble.step_us / 1e6,
               (trouble.step_us / trouble.plain_us - 1) * 100, trouble.upper_bound ? " at most" : "");
    if (!trouble.instead.empty())
      fmt::print("; --{}: {:.3f} s, {:+.1f} %", trouble.instead, trouble.instead_us / 1e6,
                 (trouble.instead_us / trouble.plain_us - 1) * 100);
    fmt::print("\n");
  }
  if (std::any_of(troubles.begin(), troubles.end(), [](const Trouble& one) { return one.upper_bound; }))
    fmt::print("at most: the rates of the one node are taken for all nodes, an upper bound of the step\n");
}

void print_sweep(const std::vector<std::vector<Plan>>& all, int ranks_per_node) {
  fmt::print("{:>6} {:>7} {:<18} {:>10} {:>11} {:>14} {:>9}\n", "nodes", "ranks", "engine", "s a step",
             "samples/s", "TFLOP/s a rank", "exposed");
  double most = 0;
  for (const std::vector<Plan>& plans : all)
    for (const Plan& plan : plans) most = std::max(most, plan.performance.published_flops);
  constexpr double kBar = 40;
  for (const std::vector<Plan>& plans : all)
    for (const Plan& plan : plans) {
      std::string bar;
      for (int i = 0; i < std::lround(plan.performance.published_flops / most * kBar); ++i) bar += "█";
      fmt::print("{:>6} {:>7} {:<18} {:>10.3f} {:>11.4g} {:>14.1f} {:>7.1f} % {}\n",
                 plan.ranks / ranks_per_node, plan.ranks, plan.assumptions.engine, plan.step_us / 1e6,
                 plan.performance.samples_per_second, plan.performance.published_flops / 1e12,
                 plan.exposed_us / plan.step_us * 100, bar);
    }
  std::vector<Plan> each;
  for (const std::vector<Plan>& plans : all) each.insert(each.end(), plans.begin(), plans.end());
  print_unplanned(each);
}

std::string html_of(const std::vector<std::vector<Plan>>& all, const Cluster& cluster) {
  struct Drawn {
    const char *title, *label, *unit;
    bool log;
    std::function<double(const Plan&)> value;
  };
  const Drawn drawn[] = {{"Rate of a rank", "as published", "TFLOP/s", false,
                          [](const Plan& plan) { return plan.performance.published_flops / 1e12; }},
                         {"A step", "time", "s", false, [](const Plan& plan) { return plan.step_us / 1e6; }},
                         {"Throughput", "samples", "1/s", true,
                          [](const Plan& plan) { return plan.performance.samples_per_second; }},
                         {"Exposed communication", "part of the step", "%", false,
                          [](const Plan& plan) { return plan.exposed_us / plan.step_us * 100; }}};
  std::string body = fmt::format("<h1>Predicted on {}</h1>\n<div class=\"charts\">\n",
                                 pages::as_text(cluster.name.empty() ? "a cluster" : cluster.name));
  for (const Drawn& one : drawn) {
    std::map<std::string, Json> engines;
    for (const std::vector<Plan>& plans : all)
      for (const Plan& plan : plans)
        engines[plan.assumptions.engine].push_back(
            Json::array({plan.ranks / cluster.ranks_per_node, one.value(plan)}));
    Json series = Json::array();
    for (const auto& [name, points] : engines) series.push_back({{"name", name}, {"points", points}});
    body += pages::chart({{"title", one.title},
                          {"x", {{"label", "nodes"}, {"log", true}}},
                          {"y", {{"label", one.label}, {"unit", one.unit}, {"log", one.log}}},
                          {"series", series}});
  }
  return pages::page("Predictions of loom plan", body + "</div>\n");
}

std::string json_of(const std::vector<std::vector<Plan>>& all, const Cluster& cluster,
                    const std::vector<Trouble>& troubles) {
  Json json = {{"cluster", cluster.name}, {"predictions", Json::array()}};
  for (const std::vector<Plan>& plans : all) {
    Json one = {{"nodes", plans.front().ranks / cluster.ranks_per_node}, {"plans", Json::array()}};
    for (const Plan& plan : plans) one["plans"].push_back(json_of(plan));
    json["predictions"].push_back(one);
  }
  for (const Trouble& trouble : troubles)
    json["what_if"].push_back({{"what", trouble.what},
                               {"step_seconds", trouble.step_us / 1e6},
                               {"upper_bound", trouble.upper_bound},
                               {"instead", trouble.instead},
                               {"instead_seconds", trouble.instead_us / 1e6}});
  return json.dump(1);
}

std::string json_of(const Fitted& fitted, const Cluster& cluster) {
  Json json = Json::parse(json_of({{fitted.plan}}, cluster));
  json["changes"] = fitted.changes;
  json["tried"] = fitted.tried;
  return json.dump(1);
}

}  // namespace loom::command
