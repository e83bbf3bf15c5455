// Lines and charts.
#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace loom::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr double kWidth = 800, kHeight = 220, kLeft = 60, kTop = 10;

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

/// A line through points, with the ranges of both axes beside it.
std::string chart(const std::string& title, const std::string& unit, const std::vector<Points>& lines) {
  double low = INFINITY, high = -INFINITY, last = 1, first = INFINITY;
  for (const Points& line : lines)
    for (const auto& [x, y] : line) {
      low = std::min(low, y), high = std::max(high, y);
      first = std::min(first, x), last = std::max(last, x);
    }
  if (!(high > low)) high = low + 1;
  if (!(last > first)) last = first + 1;
  const char* const colours[] = {"#1f6feb", "#d1242f"};
  std::string text = fmt::format(
      "<h2>{}</h2><svg viewBox=\"0 0 {} {}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
      "class=\"frame\"/>",
      title, kWidth + kLeft + 10, kHeight + 40, kLeft, kTop, kWidth, kHeight);
  for (size_t i = 0; i < lines.size(); ++i) {
    text += fmt::format("<polyline stroke=\"{}\" points=\"", colours[i % 2]);
    for (const auto& [x, y] : thinned(lines[i]))
      text += fmt::format("{:.1f},{:.1f} ", kLeft + (x - first) / (last - first) * kWidth,
                          kTop + (high - y) / (high - low) * kHeight);
    text += "\"/>";
  }
  text += fmt::format(
      "<text x=\"{0}\" y=\"{1}\" class=\"y\">{3:.4g}</text><text x=\"{0}\" y=\"{2}\" "
      "class=\"y\">{4:.4g}</text>",
      kLeft - 4, kTop + 12, kTop + kHeight, high, low);
  text += fmt::format(
      "<text x=\"{}\" y=\"{}\">step {:.0f}</text><text x=\"{}\" y=\"{}\" class=\"y\">step {:.0f}</text>",
      kLeft, kTop + kHeight + 16, first, kLeft + kWidth, kTop + kHeight + 16, last);
  return text + fmt::format("<text x=\"{}\" y=\"{}\" class=\"y\">{}</text></svg>\n", kLeft + kWidth - 6,
                            kTop + 16, unit);
}

/// For a page, where some letters mean something.
std::string as_text(std::string_view sentence) {
  std::string text;
  for (const char letter : sentence)
    text += letter == '<'   ? "&lt;"
            : letter == '>' ? "&gt;"
            : letter == '&' ? "&amp;"
                            : std::string(1, letter);
  return text;
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
      "step {}/{}  loss {:.4f}  norm {:.3g}  lr {:.2e}  {:.0f} ms  {:.0f} tok/s  {:.4f} TFLOP/s ({:.0f} %)  "
      "mem {}  "
      "waiting {:.1f} %  ETA {}",
      r.step + 1, trainer.config().run.steps, r.loss, r.gradient_norm, r.learning_rate, r.seconds * 1e3,
      r.tokens_per_second, r.flops / 1e12, r.flops / peak * 100, memory, r.exposed * 100,
      duration(r.seconds_left));
  if (r.loss_scale > 0)
    line +=
        fmt::format("  scale {}{}  skipped {}", r.loss_scale, r.skipped ? " overflows" : "", r.skipped_steps);
  if (trainer.engine().job().pipeline_degree > 1) line += fmt::format("  bubble {:.1f} %", r.bubble * 100);
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
  read("exposed", record.exposed);
  read("bubble", record.bubble);
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
  Points loss, validation, accuracy, speed;
  for (const StepRecord& record : records) {
    const double step = static_cast<double>(record.step + 1);
    if (std::isfinite(record.loss)) loss.emplace_back(step, record.loss);
    speed.emplace_back(step, record.tokens_per_second);
    if (record.validation_loss) validation.emplace_back(step, *record.validation_loss);
    if (record.validation_accuracy) accuracy.emplace_back(step, *record.validation_accuracy);
  }
  std::string page =
      "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>Loom</title><style>body{font:14px "
      "sans-serif;max-width:1200px;margin:2em "
      "auto}svg{width:100%}polyline{fill:none;stroke-width:1.5}.frame{fill:none;"
      "stroke:#ccc}canvas{width:100%;display:block;touch-action:none}.panel{margin:1em "
      "0}#hover{color:#555}text{font-size:11px;fill:#555}.y{text-anchor:end}pre{background:#f6f8fa;padding:"
      "1em}td{"
      "padding:0 1em;"
      "text-align:right}</style></head>"
      "<body><h1>A run of Loom</h1>\n";
  if (!ended.ok())
    page += fmt::format("{}{} of {} steps:</b> {}{}", kFailure, trainer.next_step(),
                        trainer.config().run.steps, as_text(ended.message()), kFailureEnd);
  else if (!trainer.is_over())
    page +=
        fmt::format("<p>Written after step {} of {}.</p>\n", trainer.next_step(), trainer.config().run.steps);
  for (const std::string& note : trainer.notes()) page += fmt::format("<p>Note: {}</p>\n", as_text(note));
  if (!records.empty()) {
    page += chart("Loss (red: validation)", "nats a token", {loss, validation});
    if (!accuracy.empty()) page += chart("Validation accuracy", "part of the texts", {accuracy});
    page += chart("Throughput", "tokens/s", {speed});
    if (trainer.trace()) page += trace_html(*trainer.trace(), trace_context(trainer, comparison));
    page += to_html(comparison);
    if (!trainer.profiles().empty())
      page +=
          "<h2>Units</h2><pre>" + engine::to_string(trainer.engine().job(), trainer.profiles()) + "</pre>\n";
  }
  return page + "<h2>Config</h2><pre>" + as_text(to_json(trainer.config()).dump(2)) +
         "</pre></body></html>\n";
}

std::string without_failure(std::string page) {
  const size_t begin = page.find(kFailure), end = page.find(kFailureEnd, begin);
  if (begin != std::string::npos && end != std::string::npos)
    page.erase(begin, end + sizeof(kFailureEnd) - 1 - begin);
  return page;
}

}  // namespace loom::train
