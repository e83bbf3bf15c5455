// Lines and charts.
#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/file.h"
#include "pages/page.h"

namespace loom::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

/// Around what a page says of a run's failure.
constexpr char kFailure[] = "<p><b>The run failed after ", kFailureEnd[] = "</p>\n";

/// Of more points than a chart can show, the lowest and the highest of each of kParts parts.
Points thinned(const Points& all) {
  constexpr size_t kParts = 1000;  // more than a screen has columns
  if (all.size() <= 2 * kParts) return all;
  Points few;
  for (size_t part = 0; part < kParts; ++part) {
    const auto at = [&](size_t i) {
      return all.begin() + static_cast<std::ptrdiff_t>(i * all.size() / kParts);
    };
    auto [first, second] = std::minmax_element(
        at(part), at(part + 1), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (second < first) std::swap(first, second);
    few.push_back(*first);
    if (second != first) few.push_back(*second);
  }
  return few;
}

/// A chart over steps.
std::string chart(const char* title, const char* label, const char* unit,
                  const std::vector<std::pair<std::string, Points>>& lines) {
  pages::Json series = pages::Json::array();
  for (const auto& [name, points] : lines)
    if (!points.empty()) series.push_back({{"name", name}, {"points", thinned(points)}});
  return pages::chart({{"title", title},
                       {"x", {{"label", "step"}}},
                       {"y", {{"label", label}, {"unit", unit}}},
                       {"series", series}});
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

TraceContext trace_context(const Trainer& trainer, const Comparison& comparison) {
  const auto units = trainer.engine().units();
  return {trainer.engine().job(), static_cast<double>(model::parameter_count({units.begin(), units.end()})),
          comparison.programs, comparison.memory, comparison.forecast};
}

}  // namespace

std::string log_line(const StepRecord& r, const Trainer& trainer, double peak) {
  const std::string memory =
      r.memory_bytes > 0 ? fmt::format("{} MiB", r.memory_bytes >> 20) : std::string("unknown");
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  norm {:.3g}  lr {:.2e}  {:.0f} ms  {:.0f} tok/s  {:.4f} TFLOP/s{}  mem {}{}  "
      "ETA {}",
      r.step + 1, trainer.config().run.steps, r.loss, r.gradient_norm, r.learning_rate, r.seconds * 1e3,
      r.tokens_per_second, r.flops / 1e12, peak > 0 ? fmt::format(" ({:.0f} %)", r.flops / peak * 100) : "",
      memory, std::isfinite(r.exposed) ? fmt::format("  waiting {:.1f} %", r.exposed * 100) : "",
      duration(r.seconds_left));
  if (r.loss_scale > 0)
    line +=
        fmt::format("  scale {}{}  skipped {}", r.loss_scale, r.skipped ? " overflows" : "", r.skipped_steps);
  if (trainer.engine().job().pipeline_degree > 1 && std::isfinite(r.bubble))
    line += fmt::format("  bubble {:.1f} %", r.bubble * 100);
  if (r.validation_loss) line += fmt::format("  validation loss {:.4f}", *r.validation_loss);
  if (r.validation_accuracy) line += fmt::format("  validation accuracy {:.4f}", *r.validation_accuracy);
  return line;
}

std::string json_line(const StepRecord& r) {
  format::Json json = {{"step", r.step + 1},
                       {"loss", r.loss},
                       {"gradient_norm", r.gradient_norm},
                       {"learning_rate", r.learning_rate},
                       {"seconds", r.seconds},
                       {"data_seconds", r.data_seconds},
                       {"tokens_per_second", r.tokens_per_second},
                       {"flops", r.flops},
                       {"exposed", r.exposed},
                       {"bubble", r.bubble},
                       {"memory_bytes", r.memory_bytes}};
  if (r.loss_scale > 0) {
    json["loss_scale"] = r.loss_scale;
    json["skipped"] = r.skipped;
    json["skipped_steps"] = r.skipped_steps;
  }
  if (r.validation_loss) json["validation_loss"] = *r.validation_loss;
  if (r.validation_accuracy) json["validation_accuracy"] = *r.validation_accuracy;
  return json.dump();
}

std::string note_line(const std::string& note) {
  // Names of files in it may be no UTF-8.
  const format::Json json = {{"note", note}};
  return json.dump(-1, ' ', false, format::Json::error_handler_t::replace);
}

std::optional<StepRecord> record_of_line(std::string_view line) {
  const Result<format::Json> json = format::parse_json(line);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  StepRecord record;
  const auto read = [&](const char* key, auto& into) {
    const auto value = format::required<std::remove_cvref_t<decltype(into)>>(*json, key);
    if (value.ok()) into = *value;
    return value.ok();
  };
  // What is not finite, as in a step that was skipped, is written as null.
  const auto read_any = [&](const char* key, double& into) {
    const auto found = json->find(key);
    if (found == json->end() || !found->is_null()) return read(key, into);
    into = std::numeric_limits<double>::quiet_NaN();
    return true;
  };
  bool right = read("step", record.step) && record.step-- > 0;
  right = right && read_any("loss", record.loss) && read_any("gradient_norm", record.gradient_norm) &&
          read("learning_rate", record.learning_rate) && read("seconds", record.seconds) &&
          read("tokens_per_second", record.tokens_per_second);
  if (!right) return std::nullopt;
  // What not every run has.
  read("data_seconds", record.data_seconds);
  read("memory_bytes", record.memory_bytes);
  read("flops", record.flops);
  read_any("exposed", record.exposed);
  read_any("bubble", record.bubble);
  read("loss_scale", record.loss_scale);
  read("skipped", record.skipped);
  read("skipped_steps", record.skipped_steps);
  double validation = 0;
  if (read("validation_loss", validation)) record.validation_loss = validation;
  if (read("validation_accuracy", validation)) record.validation_accuracy = validation;
  return record;
}

std::string trace_line(const Trainer& trainer, const Comparison& comparison) {
  return trainer.trace() ? trace_line(*trainer.trace(), trace_context(trainer, comparison)) : std::string();
}

std::string html_report(const std::vector<StepRecord>& records, const Trainer& trainer,
                        const Comparison& comparison, const Status& ended) {
  std::string body = "<h1>A run of Loom</h1>\n";
  if (!ended.ok())
    body += fmt::format("{}{} of {} steps:</b> {}{}", kFailure, trainer.next_step(),
                        trainer.config().run.steps, pages::as_text(ended.message()), kFailureEnd);
  else if (!trainer.is_over())
    body +=
        fmt::format("<p>Written after step {} of {}.</p>\n", trainer.next_step(), trainer.config().run.steps);
  for (const std::string& note : trainer.notes())
    body += fmt::format("<p>Note: {}</p>\n", pages::as_text(note));
  const bool traced = !records.empty() && trainer.trace() && comparison.forecasts();
  if (!records.empty()) {
    body += run_charts({{"this run", records}});
    if (traced) body += trace_html(*trainer.trace(), trace_context(trainer, comparison));
    body += to_html(comparison);
    if (!trainer.profiles().empty())
      body +=
          "<h2>Units</h2><pre>" + engine::to_string(trainer.engine().job(), trainer.profiles()) + "</pre>\n";
  }
  body += "<h2>Config</h2><pre>" + pages::as_text(to_json(trainer.config()).dump(2)) + "</pre>\n";
  return pages::page("A run of Loom", body, traced ? pages::kTimelineScript : "");
}

std::string run_charts(const std::vector<LoggedRun>& runs) {
  std::vector<std::pair<std::string, Points>> losses, accuracies, speeds, waits;
  for (const LoggedRun& run : runs) {
    Points loss, validation, accuracy, speed, wait;
    for (const StepRecord& record : run.records) {
      const double step = static_cast<double>(record.step + 1);
      if (std::isfinite(record.loss)) loss.emplace_back(step, record.loss);
      speed.emplace_back(step, record.tokens_per_second);
      if (std::isfinite(record.exposed)) wait.emplace_back(step, record.exposed * 100);
      if (record.validation_loss) validation.emplace_back(step, *record.validation_loss);
      if (record.validation_accuracy) accuracy.emplace_back(step, *record.validation_accuracy);
    }
    const std::string of = runs.size() == 1 ? "" : run.name + ", ";
    losses.emplace_back(of + "training", loss);
    losses.emplace_back(of + "validation", validation);
    accuracies.emplace_back(run.name, accuracy);
    speeds.emplace_back(run.name, speed);
    waits.emplace_back(run.name, wait);
  }
  return "<div class=\"charts\">\n" + chart("Loss", "loss", "nats a token", losses) +
         chart("Validation accuracy", "part of the texts", "", accuracies) +
         chart("Throughput", "tokens a second", "", speeds) +
         chart("Waiting for communication", "part of the step", "%", waits) + "</div>\n";
}

std::string html_of(const std::vector<LoggedRun>& runs) {
  std::string body = "<h1>Runs of Loom</h1>\n" + run_charts(runs);
  body +=
      "<h2>Runs</h2>\n<table><tr><th>run</th><th>steps</th><th>last loss</th><th>last validation loss</th>"
      "<th>ms a step, median</th><th>predicted</th><th>tokens a second, median</th></tr>\n";
  for (const LoggedRun& run : runs) {
    std::vector<double> seconds, tokens;
    std::string validation;
    for (const StepRecord& record : run.records) {
      seconds.push_back(record.seconds);
      tokens.push_back(record.tokens_per_second);
      if (record.validation_loss) validation = fmt::format("{:.4f}", *record.validation_loss);
    }
    const auto median = [](std::vector<double>& values) {
      const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
      std::nth_element(values.begin(), middle, values.end());
      return *middle;
    };
    body += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.4f}</td><td>{}</td><td>{:.1f}</td><td>{}</td>"
        "<td>{:.0f}</td></tr>\n",
        pages::as_text(run.name), run.records.size(), run.records.back().loss, validation,
        median(seconds) * 1e3, run.predicted_us > 0 ? fmt::format("{:.1f}", run.predicted_us / 1e3) : "",
        median(tokens));
  }
  return pages::page("Runs of Loom", body + "</table>\n");
}

Result<LoggedRun> read_log(const std::string& folder) {
  const std::string path = join_path(folder, "log.jsonl");
  const Result<std::string> text = read_file(path);
  LOOM_TRY(text.status());
  LoggedRun run{folder, {}, 0};
  std::map<int64_t, StepRecord> steps;  // the last of those that were done again
  for (size_t at = 0, end = 0; at < text->size(); at = end + 1) {
    end = std::min(text->find('\n', at), text->size());
    const std::string_view line = std::string_view(*text).substr(at, end - at);
    if (const std::optional<StepRecord> record = record_of_line(line)) {
      steps[record->step] = *record;
      continue;
    }
    const Result<format::Json> json = format::parse_json(line);
    if (!json.ok() || !json->is_object() || !json->contains("predicted")) continue;
    const Result<double> us = format::required<double>((*json)["predicted"], "step_us");
    if (us.ok()) run.predicted_us = *us;
  }
  for (const auto& [number, record] : steps) run.records.push_back(record);
  if (run.records.empty()) return fail(Code::invalid_data, "{} has no steps to draw", path);
  return run;
}

std::string without_failure(std::string page) {
  const size_t begin = page.find(kFailure), end = page.find(kFailureEnd, begin);
  if (begin != std::string::npos && end != std::string::npos)
    page.erase(begin, end + sizeof(kFailureEnd) - 1 - begin);
  return page;
}

}  // namespace loom::train
