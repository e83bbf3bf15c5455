// Read from manifests, and compared with configs.
#include "train/position.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace loom::train {

format::Json Position::to_json() const {
  format::Json json = {{"sequences", sequences},
                       {"global_batch", global_batch},
                       {"sequence_length", sequence_length},
                       {"seed", seed}};
  if (!dataset.empty()) json["dataset"] = dataset;
  return json;
}

std::string dataset_key(const text::BatchSource& source) {
  return fmt::format("{:016x}", source.dataset_key());
}

Result<Position> position_of(const format::Json& manifest, int64_t step) {
  Position position;
  const auto read = [](const format::Json& from, const char* key, int64_t& into,
                       int64_t least = 0) -> Status {
    const Result<int64_t> value = format::required<int64_t>(from, key);
    LOOM_TRY(value.status());
    if (*value < least) return fail(Code::invalid_data, "\"{}\" is {}, must not be negative", key, *value);
    into = *value;
    return {};
  };
  if (manifest.contains("data")) {
    const format::Json& data = manifest["data"];
    LOOM_TRY(read(data, "sequences", position.sequences).in("data"));
    LOOM_TRY(read(data, "global_batch", position.global_batch).in("data"));
    LOOM_TRY(read(data, "sequence_length", position.sequence_length).in("data"));
    LOOM_TRY(read(data, "seed", position.seed, INT64_MIN).in("data"));
    if (!data.contains("dataset")) return position;
    const Result<std::string> dataset = format::required<std::string>(data, "dataset");
    LOOM_TRY(dataset.status().in("data"));
    if (dataset->size() != 16 || dataset->find_first_not_of("0123456789abcdef") != std::string::npos)
      return fail(Code::invalid_data, "data: \"dataset\" is \"{}\", must have 16 hexadecimal digits",
                  *dataset);
    position.dataset = *dataset;
    return position;
  }
  const Result<Config> config =
      stored_config(manifest.contains("config") ? manifest["config"] : format::Json::object());
  LOOM_TRY(config.status().in("config"));
  const Position begun{step * config->data.global_batch, config->data.global_batch,
                       config->data.sequence_length, config->run.seed, ""};
  return position_of({{"data", begun.to_json()}}, step);
}

Result<Continuation> continuation(const Position& stored, const Config& config, const std::string& dataset,
                                  bool own_run) {
  const int64_t length = config.data.sequence_length, seed = config.run.seed;
  std::string others;
  if (length != stored.sequence_length || seed != stored.seed)
    others = fmt::format("the checkpoint has data.sequence_length {} and run.seed {}, the config {} and {}",
                         stored.sequence_length, stored.seed, length, seed);
  else if (stored.dataset.empty() ? config.data.packing : stored.dataset != dataset)
    others =
        fmt::format("the checkpoint is of other data than those of {}, or of another data.packing than {}",
                    config.data.folder, config.data.packing);
  if (!others.empty()) {
    if (own_run)
      return fail(
          Code::invalid_argument,
          "{}: its place in the data would be another; give the config the checkpoint's, or begin another "
          "run.out with the checkpoint as its run.resume_from, which takes the data from the beginning",
          others);
    return Continuation{0, fmt::format("{}: the data are taken from the beginning", others)};
  }
  Continuation next{stored.sequences, ""};
  if (config.data.global_batch != stored.global_batch)
    next.note = fmt::format(
        "data.global_batch is {} and was {} before: goes on after the {} sequences that were trained on",
        config.data.global_batch, stored.global_batch, stored.sequences);
  return next;
}

std::string rate_change(const Config& before, const Config& config, int64_t step) {
  const double then = learning_rate(before, step), now = learning_rate(config, step);
  constexpr double kRounding = 1e-9;
  if (std::abs(now - then) <= kRounding * std::max(now, then)) return "";
  std::string keys;
  const auto compare = [&](const char* key, const auto& old_value, const auto& value) {
    if (old_value == value) return;
    keys += fmt::format("{}{} is {} and was {} before", keys.empty() ? "" : ", ", key, value, old_value);
  };
  compare("run.steps", before.run.steps, config.run.steps);
  compare("optimizer.learning_rate", before.optimizer.learning_rate, config.optimizer.learning_rate);
  compare("optimizer.final_rate", before.optimizer.final_rate, config.optimizer.final_rate);
  compare("optimizer.warmup_steps", before.optimizer.warmup_steps, config.optimizer.warmup_steps);
  compare("optimizer.schedule", before.optimizer.schedule, config.optimizer.schedule);
  return fmt::format("the learning rate of step {} is {:.4g}, and would have been {:.4g}: {}", step, now,
                     then, keys);
}

}  // namespace loom::train
