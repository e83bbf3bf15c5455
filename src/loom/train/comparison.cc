// The same rows for people, programs and browsers.
#include "train/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/generate.h"

namespace loom::train {
namespace {

constexpr double kMiB = 1 << 20;

/// For readers of the page alone; docs/reference/tools.md lists every word.
constexpr char kLegend[] =
    "<p>Time is a rank's, by kind of instruction: computing, or, of communication, issuing and waiting for "
    "it. "
    "<b>data</b> is the reading of the batch, <b>optimizer</b> the update of this rank's masters, "
    "<b>outside</b> what of a step is in no "
    "instruction, <b>whole step</b> the sum, <b>of which waiting</b> all time in which the rank waited for "
    "communication, for other stages, or for the file of offloaded activations, <b>bubble</b>, of "
    "pipelines, the part of the time until the norm in which ranks, on average, do not compute. Memory: "
    "<b>optimizer</b> is "
    "moments, <b>gathered</b> whole units' parameters while they are used, <b>unreduced</b> whole units' "
    "gradients before they are reduced to this rank's part, <b>arena</b> what was allocated for all of "
    "these, <b>process</b> what the kernel says the run took.</p>\n";

/// A line of a table; a negative number is not known.
struct Row {
  std::string name;
  double predicted = -1, measured = -1;
};

std::vector<Row> time_rows(const Comparison& c) {
  std::vector<Row> rows;
  const auto take = [&](const Breakdown& breakdown, double Row::*column) {
    for (const auto& [name, us] : breakdown.parts()) {
      auto row =
          std::find_if(rows.begin(), rows.end(), [&name = name](const Row& r) { return r.name == name; });
      if (row == rows.end()) row = rows.insert(rows.end(), Row{name, 0, 0});
      (*row).*column = us / 1e3;
    }
  };
  take(c.predicted, &Row::predicted);
  take(c.measured, &Row::measured);
  rows.push_back({"whole step", c.predicted.step_us / 1e3, c.measured.step_us / 1e3});
  if (c.measured.waiting_us >= 0)
    rows.push_back({"of which waiting", c.predicted.waiting_us / 1e3, c.measured.waiting_us / 1e3});
  if (c.measured.bubble >= 0)
    rows.push_back({"bubble, %", c.predicted.bubble * 100, c.measured.bubble * 100});
  if (!c.forecasts())
    for (Row& row : rows) row.predicted = -1;
  return rows;
}

std::vector<Row> memory_rows(const Comparison& c) {
  std::vector<Row> rows;
  for (int category = 0; category < program::kCategories; ++category)
    rows.push_back({program::category_name(static_cast<program::Category>(category)),
                    static_cast<double>(c.planned.peak[category]) / kMiB, -1});
  rows.push_back({"arena", static_cast<double>(c.planned.bytes) / kMiB, -1});
  rows.push_back(
      {c.on_gpu ? "kernels' scratch" : "threads' scratch", -1, static_cast<double>(c.scratch_bytes) / kMiB});
  rows.push_back({"process", static_cast<double>(c.planned.bytes) / kMiB,
                  c.measured_bytes > 0 ? static_cast<double>(c.measured_bytes) / kMiB : -1});
  return rows;
}

std::string number(double value) { return value < 0 ? "" : fmt::format("{:.2f}", value); }

std::string text_of(const std::string& title, const std::vector<Row>& rows) {
  std::string text = fmt::format("{:<22}{:>14}{:>14}\n", title, "predicted", "measured");
  for (const Row& row : rows)
    text += fmt::format("{:<22}{:>14}{:>14}\n", row.name, number(row.predicted), number(row.measured));
  return text;
}

std::string html_of(const std::string& title, const std::vector<Row>& rows) {
  std::string text = fmt::format("<table><tr><th>{}</th><th>predicted</th><th>measured</th></tr>\n", title);
  for (const Row& row : rows)
    text += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", row.name, number(row.predicted),
                        number(row.measured));
  return text + "</table>\n";
}

format::Json json_of(const Breakdown& breakdown) {
  format::Json json;
  for (const auto& [name, us] : breakdown.parts()) json[name + "_us"] = us;
  if (breakdown.waiting_us >= 0) json["waiting_us"] = breakdown.waiting_us;
  json["step_us"] = breakdown.step_us;
  if (breakdown.bubble >= 0) json["bubble"] = breakdown.bubble;
  return json;
}

}  // namespace

Comparison compare(const Trainer& trainer, const std::optional<program::Machine>& machine) {
  const engine::Engine& engine = trainer.engine();
  Result<std::vector<program::Program>> programs = program::make_programs(engine.job());
  Comparison comparison;
  if (programs.ok()) {  // as it was when the engine made them
    comparison.programs = programs.take();
    for (const program::Program& program : comparison.programs)
      comparison.memory.push_back(program::plan_memory(program));
  }
  if (programs.ok() && machine) {
    comparison.forecast = program::simulate(engine.job(), comparison.programs, *machine);
    comparison.predicted = breakdown_of(
        engine.training(), comparison.forecast.stages[static_cast<size_t>(engine.training().stage)]);
    if (engine.job().pipeline_degree > 1) comparison.predicted.bubble = comparison.forecast.bubble;
  }
  comparison.planned = engine.memory();
  measure_again(trainer, comparison);
  return comparison;
}

void measure_again(const Trainer& trainer, Comparison& comparison) {
  const engine::Engine& engine = trainer.engine();
  comparison.measured = trainer.measured().mean();
  comparison.steps = trainer.measured().steps();
  comparison.scratch_bytes = engine.memory_bytes() - engine.arena_bytes();
  comparison.on_gpu = trainer.devices().gpu >= 0;
  comparison.measured_bytes = trainer.measured_bytes();
}

std::string to_text(const Comparison& c) {
  return text_of("time, ms a step", time_rows(c)) + "\n" + text_of("memory, MiB", memory_rows(c));
}

std::string json_line(const Comparison& c) {
  format::Json predicted = c.forecasts() ? json_of(c.predicted) : format::Json::object(),
               measured = json_of(c.measured);
  for (int category = 0; category < program::kCategories; ++category)
    predicted[fmt::format("{}_bytes", program::category_name(static_cast<program::Category>(category)))] =
        c.planned.peak[category];
  predicted["memory_bytes"] = c.planned.bytes;
  measured["steps"] = c.steps;
  measured["scratch_bytes"] = c.scratch_bytes;
  measured["memory_bytes"] = c.measured_bytes;
  return format::Json({{"predicted", predicted}, {"measured", measured}}).dump();
}

std::string to_html(const Comparison& c) {
  return fmt::format("<h2>Predicted and measured</h2>\n{}{}{}", kLegend, html_of("ms a step", time_rows(c)),
                     html_of("MiB a rank", memory_rows(c)));
}

}  // namespace loom::train
