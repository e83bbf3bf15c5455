// The keys, in one list that parsing and printing share.
#include "train/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "text/utf8.h"
#include "train/config_keys.h"

namespace loom::train {
namespace {

using format::Json;

/// Calls visit(key, member) for every key.
template <typename C, typename F>
void for_each_key(C& c, F&& visit) {
  visit("model.family", c.model.family);
  visit("model.task", c.model.task);
  visit("model.from", c.model.from);
  visit("model.vocabulary", c.model.vocabulary);
  visit("model.context", c.model.context);
  visit("model.width", c.model.width);
  visit("model.layers", c.model.layers);
  visit("model.heads", c.model.heads);
  visit("model.key_value_heads", c.model.key_value_heads);
  visit("model.feed_forward", c.model.feed_forward);
  visit("model.activation", c.model.activation);
  visit("model.dropout", c.model.dropout);
  visit("model.tied", c.model.tied);
  visit("data.folder", c.data.folder);
  visit("data.sequence_length", c.data.sequence_length);
  visit("data.global_batch", c.data.global_batch);
  visit("data.microbatch", c.data.microbatch);
  visit("data.packing", c.data.packing);
  visit("parallel.sharded_data_parallel_degree", c.parallel.sharded_data_parallel_degree);
  visit("parallel.shard_optimizer_state", c.parallel.shard_optimizer_state);
  visit("parallel.pipeline_degree", c.parallel.pipeline_degree);
  visit("parallel.tensor_degree", c.parallel.tensor_degree);
  visit("parallel.pipeline", c.parallel.pipeline);
  visit("parallel.virtual_stages", c.parallel.virtual_stages);
  visit("parallel.active_microbatches", c.parallel.active_microbatches);
  visit("parallel.partition", c.parallel.partition);
  visit("parallel.tied", c.parallel.tied);
  visit("parallel.memory_weight", c.parallel.memory_weight);
  visit("parallel.profile", c.parallel.profile);
  visit("parallel.optimize", c.parallel.optimize);
  visit("parallel.prescaled_batch", c.parallel.prescaled_batch);
  visit("parallel.placement", c.parallel.placement);
  visit("parallel.memory_limit_mb", c.parallel.memory_limit_mb);
  visit("parallel.prefetch", c.parallel.prefetch);
  visit("parallel.in_flight", c.parallel.in_flight);
  visit("parallel.live_parameters", c.parallel.live_parameters);
  visit("parallel.activation_checkpointing", c.parallel.activation_checkpointing);
  visit("parallel.activation_offloading", c.parallel.activation_offloading);
  visit("parallel.activation_loading_horizon", c.parallel.activation_loading_horizon);
  visit("parallel.offload_folder", c.parallel.offload_folder);
  visit("parallel.precision", c.parallel.precision);
  visit("parallel.strict", c.parallel.strict);
  visit("parallel.device", c.parallel.device);
  visit("parallel.attention", c.parallel.attention);
  visit("parallel.threads", c.parallel.threads);
  visit("optimizer.learning_rate", c.optimizer.learning_rate);
  visit("optimizer.final_rate", c.optimizer.final_rate);
  visit("optimizer.warmup_steps", c.optimizer.warmup_steps);
  visit("optimizer.schedule", c.optimizer.schedule);
  visit("optimizer.beta1", c.optimizer.beta1);
  visit("optimizer.beta2", c.optimizer.beta2);
  visit("optimizer.epsilon", c.optimizer.epsilon);
  visit("optimizer.weight_decay", c.optimizer.weight_decay);
  visit("optimizer.clip_norm", c.optimizer.clip_norm);
  visit("loss_scale.initial", c.loss_scale.initial);
  visit("loss_scale.factor", c.loss_scale.factor);
  visit("loss_scale.window", c.loss_scale.window);
  visit("loss_scale.minimum", c.loss_scale.minimum);
  visit("loss_scale.delayed_shift", c.loss_scale.delayed_shift);
  visit("loss_scale.static", c.loss_scale.constant);
  visit("run.out", c.run.out);
  visit("run.steps", c.run.steps);
  visit("run.seed", c.run.seed);
  visit("run.evaluate_every", c.run.evaluate_every);
  visit("run.evaluation_steps", c.run.evaluation_steps);
  visit("run.checkpoint_every", c.run.checkpoint_every);
  visit("run.keep", c.run.keep);
  visit("run.checkpoint_optimizer", c.run.checkpoint_optimizer);
  visit("run.save_model_every", c.run.save_model_every);
  visit("run.model_dtype", c.run.model_dtype);
  visit("run.resume", c.run.resume);
  visit("run.resume_from", c.run.resume_from);
  visit("run.trace_step", c.run.trace_step);
  visit("run.trace_ranks", c.run.trace_ranks);
  visit("run.remeasure", c.run.remeasure);
}

const char* kind_of(const std::string&) { return "a text"; }
const char* kind_of(int64_t) { return "a whole number below 2^63"; }
const char* kind_of(const OrAuto&) { return "a whole number or \"auto\""; }
const char* kind_of(const Checkpointing&) {
  return "none, each, contiguous, group_K or every_K, K being a whole number from 1 on";
}
const char* kind_of(double) { return "a number"; }
const char* kind_of(bool) { return "true or false"; }
template <typename T>
const char* kind_of(const std::optional<T>&) {
  return kind_of(T());
}

/// A list of whole numbers, such as the first units of a partition, is the text of them.
bool assign(const Json& value, std::string& into) {
  const auto whole = [](const Json& number) { return number.is_number_unsigned(); };
  if (value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), whole)) {
    into = fmt::format("{}", fmt::join(value.get<std::vector<uint64_t>>(), ","));
    return true;
  }
  if (!value.is_string()) return false;
  into = value.get<std::string>();
  return true;
}
bool assign(const Json& value, int64_t& into) {
  constexpr auto kMost = static_cast<uint64_t>(INT64_MAX);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > kMost))
    return false;
  into = value.get<int64_t>();
  return true;
}
bool assign(const Json& value, OrAuto& into) {
  if (value == "auto") into = 0;
  return value == "auto" || assign(value, into.value);
}
bool assign(const Json& value, Checkpointing& into) {
  const auto read = checkpointing_from(value.is_string() ? value.get<std::string>() : value.dump());
  if (read) into = *read;
  return read.has_value();
}
bool assign(const Json& value, double& into) {
  if (!value.is_number()) return false;
  into = value.get<double>();
  return true;
}
bool assign(const Json& value, bool& into) {
  if (!value.is_boolean()) return false;
  into = value.get<bool>();
  return true;
}
/// null leaves it open.
template <typename T>
bool assign(const Json& value, std::optional<T>& into) {
  into.reset();
  return value.is_null() || assign(value, into.emplace());
}

template <typename T>
Json json_of(const T& member) {
  return member;
}
template <typename T>
Json json_of(const std::optional<T>& member) {
  return member ? Json(*member) : Json(nullptr);
}

using Values = std::map<std::string, Json>;

Status flatten(const Json& json, Values& values) {
  if (!json.is_object()) return fail(Code::invalid_data, "a config must be an object of sections");
  for (const auto& [section, keys] : json.items()) {
    if (!keys.is_object())
      return fail(Code::invalid_data, "\"{}\" must be a section, as in {{\"{}\": {{…}}}}", section, section);
    for (const auto& [key, value] : keys.items()) values[section + "." + key] = value;
  }
  return {};
}

/// An override is printed and stored as JSON, which has no other texts.
Status check_utf8(std::string_view override) {
  for (size_t at = 0; at < override.size();) {
    const text::Utf8Char character = text::utf8_at(override, at);
    if (!character.valid)
      return fail(Code::invalid_argument, "{}…: byte {} of this override is {:#04x}, which is no UTF-8 there",
                  override.substr(0, at), at, static_cast<unsigned char>(override[at]));
    at += character.bytes;
  }
  return {};
}

/// Whether what a key takes is a text.
bool takes_text(const std::string& key) {
  const Config config;
  bool takes = false;
  for_each_key(config, [&](const char* other, const auto& member) {
    takes |= key == other && std::is_same_v<std::remove_cvref_t<decltype(member)>, std::string>;
  });
  return takes;
}

/// A value of the command line: JSON as a file may have it, else a text. What is to be a text is one even if
/// it looks like a number; a list of them may be a partition.
Json value_of(const std::string& key, const std::string& text) {
  auto value = format::parse_json(text);
  if (!value.ok() || value->is_object()) return text;
  if (takes_text(key) && !value->is_string() && !value->is_array()) return text;
  return value.take();
}

/// The operating system ends a path at a NUL, and would take another one.
Status check_no_nul(const char* key, const std::string& member) {
  if (member.find('\0') == std::string::npos) return {};
  return fail(Code::invalid_argument, "{} is {}, must be a text without NUL", key, Json(member).dump());
}
template <typename T>
Status check_no_nul(const char*, const T&) {
  return {};
}

/// Of what is left out, some depends on other values.
Result<Config> config_of(Values values) {
  Config config;
  const bool weighs = values.contains("parallel.memory_weight");
  const bool ends = values.contains("optimizer.final_rate") || !values.contains("optimizer.learning_rate");
  Status status;
  std::vector<std::string> known;
  for_each_key(config, [&](const char* key, auto& member) {
    known.push_back(key);
    const auto found = values.find(key);
    if (found == values.end()) return;
    if (!assign(found->second, member) && status.ok())
      status =
          fail(Code::invalid_argument, "{} is {}, must be {}", key, found->second.dump(), kind_of(member));
    if (status.ok()) status = check_no_nul(key, member);
    values.erase(found);
  });
  LOOM_TRY(status);
  if (!values.empty()) {
    const std::string& wrong = values.begin()->first;
    const std::string nearest = format::nearest_name(wrong, known);
    return fail(Code::invalid_argument, "there is no key {}{}", wrong,
                nearest.empty() ? "" : "; did you mean " + nearest + "?");
  }
  if (!weighs) config.parallel.memory_weight = config.parallel.optimize == "speed" ? 0.2 : 0.8;
  if (!ends) config.optimizer.final_rate = config.optimizer.learning_rate / 10;
  return config;
}

Status check(const Config& c) {
  const auto within = [](const char* key, double value, double least, double most) -> Status {
    if (value >= least && value <= most) return {};
    return fail(Code::invalid_argument, "{} is {}, must be from {} to {}", key, value, least, most);
  };
  constexpr double kMany = 1e15;
  LOOM_TRY(within("data.sequence_length", static_cast<double>(c.data.sequence_length), 1, INT32_MAX));
  LOOM_TRY(within("data.global_batch", static_cast<double>(c.data.global_batch), 1, INT32_MAX));
  LOOM_TRY(within("data.microbatch", static_cast<double>(c.data.microbatch), 0, INT32_MAX));
  if (c.model.layers != 0)  // left open
    LOOM_TRY(within("model.layers", static_cast<double>(c.model.layers), 1, model::kMostLayers));
  LOOM_TRY(within("parallel.memory_limit_mb", static_cast<double>(c.parallel.memory_limit_mb), 0, 1e12));
  LOOM_TRY(within("parallel.sharded_data_parallel_degree",
                  static_cast<double>(c.parallel.sharded_data_parallel_degree), 0, 1e6));
  LOOM_TRY(within("parallel.pipeline_degree", static_cast<double>(c.parallel.pipeline_degree), 1, 1e6));
  LOOM_TRY(within("parallel.tensor_degree", static_cast<double>(c.parallel.tensor_degree), 1, 1e6));
  LOOM_TRY(within("parallel.virtual_stages", static_cast<double>(c.parallel.virtual_stages), 1, 1e6));
  LOOM_TRY(
      within("parallel.active_microbatches", static_cast<double>(c.parallel.active_microbatches), 0, 1e9));
  LOOM_TRY(within("parallel.memory_weight", c.parallel.memory_weight, 0, 1));
  LOOM_TRY(within("parallel.prefetch", static_cast<double>(c.parallel.prefetch), 0, 1000));
  LOOM_TRY(within("parallel.in_flight", static_cast<double>(c.parallel.in_flight), 1, 1000));
  LOOM_TRY(within("parallel.live_parameters", static_cast<double>(c.parallel.live_parameters), 0, kMany));
  LOOM_TRY(within("parallel.activation_loading_horizon",
                  static_cast<double>(c.parallel.activation_loading_horizon), 0, 1e6));
  LOOM_TRY(within("parallel.threads", static_cast<double>(c.parallel.threads), 0, 4096));
  LOOM_TRY(within("optimizer.learning_rate", c.optimizer.learning_rate, 0, 1e6));
  if (c.optimizer.schedule != "constant")  // which never comes to it
    LOOM_TRY(within("optimizer.final_rate", c.optimizer.final_rate, 0, c.optimizer.learning_rate));
  LOOM_TRY(within("optimizer.warmup_steps", static_cast<double>(c.optimizer.warmup_steps), 0, 4e9));
  LOOM_TRY(within("optimizer.weight_decay", c.optimizer.weight_decay, 0, 1e6));
  LOOM_TRY(within("optimizer.clip_norm", c.optimizer.clip_norm, 0, 1e30));
  LOOM_TRY(within("optimizer.beta1", c.optimizer.beta1, 0, 0.999999));
  LOOM_TRY(within("optimizer.beta2", c.optimizer.beta2, 0, 0.9999999));
  LOOM_TRY(within("optimizer.epsilon", c.optimizer.epsilon, 1e-30, 1));
  if (c.run.out.empty()) return fail(Code::invalid_argument, "run.out is empty, must name a folder");
  LOOM_TRY(within("run.steps", static_cast<double>(c.run.steps), 1, 4e9));
  LOOM_TRY(within("run.evaluate_every", static_cast<double>(c.run.evaluate_every), 0, 4e9));
  LOOM_TRY(within("run.evaluation_steps", static_cast<double>(c.run.evaluation_steps), 1, kMany));
  LOOM_TRY(within("run.checkpoint_every", static_cast<double>(c.run.checkpoint_every), 0, 4e9));
  LOOM_TRY(within("run.save_model_every", static_cast<double>(c.run.save_model_every), 0, 4e9));
  LOOM_TRY(within("run.keep", static_cast<double>(c.run.keep), 1, 1e6));
  LOOM_TRY(
      within("run.trace_step", static_cast<double>(c.run.trace_step), 0, static_cast<double>(c.run.steps)));
  LOOM_TRY(within("run.trace_ranks", static_cast<double>(c.run.trace_ranks), 0, 1e6));
  const auto one_of = [](const char* key, const std::string& value,
                         std::vector<std::string> choices) -> Status {
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return {};
    return fail(Code::invalid_argument, "{} is \"{}\", must be {}", key, value, fmt::join(choices, ", "));
  };
  LOOM_TRY(one_of("parallel.optimize", c.parallel.optimize, {"memory", "speed"}));
  LOOM_TRY(one_of("parallel.precision", c.parallel.precision, {"fp32", "bf16", "fp16"}));
  LOOM_TRY(one_of("run.model_dtype", c.run.model_dtype, {"auto", "fp32", "bf16", "fp16"}));
  LOOM_TRY(one_of("parallel.device", c.parallel.device, {"auto", "cpu", "cuda"}));
  LOOM_TRY(one_of("parallel.attention", c.parallel.attention, {"own", "cudnn", "auto"}));
  LOOM_TRY(c.loss_scale.check());
  LOOM_TRY(one_of("parallel.pipeline", c.parallel.pipeline, {"simple", "1f1b", "interleaved"}));
  const std::string& partition = c.parallel.partition;
  if (partition.empty() || !by_hand(partition))
    LOOM_TRY(one_of("parallel.partition", partition, {"auto", "tree", "even", "first units such as 0,5,9"}));
  LOOM_TRY(one_of("parallel.tied", c.parallel.tied, {"auto", "copies", "together"}));
  LOOM_TRY(one_of("optimizer.schedule", c.optimizer.schedule, {"cosine", "linear", "constant"}));
  return one_of("model.activation", c.model.activation, {"", "gelu_new", "gelu", "relu", "silu"});
}

}  // namespace

std::vector<KeyDefault> key_defaults() {
  const Config config;
  std::vector<KeyDefault> defaults;
  for_each_key(config, [&](const char* key, const auto& member) {
    defaults.push_back({key, json_of(member).dump()});
  });
  return defaults;
}

void to_json(Json& json, const OrAuto& value) { json = value == 0 ? Json("auto") : Json(value.value); }
void to_json(Json& json, const Checkpointing& value) { json = to_string(value); }

Result<Config> parse_config(const Json& json, std::span<const std::string> overrides) {
  Values values;
  LOOM_TRY(flatten(json, values));
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(Code::invalid_argument, "\"{}\" is no override; write section.key=value", text);
    LOOM_TRY(check_utf8(text));
    const std::string key = text.substr(0, equals);
    values[key] = value_of(key, text.substr(equals + 1));
  }
  Result<Config> config = config_of(std::move(values));
  LOOM_TRY(config.status());
  LOOM_TRY(check(*config));
  return config;
}

Result<Config> stored_config(const Json& json) {
  Values values;
  LOOM_TRY(flatten(json, values));
  return config_of(std::move(values));
}

Json to_json(const Config& config) {
  Json json;
  for_each_key(config, [&](const std::string& key, const auto& member) {
    const size_t dot = key.find('.');
    json[key.substr(0, dot)][key.substr(dot + 1)] = json_of(member);
  });
  return json;
}

double learning_rate(const Config& config, int64_t step) {
  const Config::Optimizer& o = config.optimizer;
  if (step < o.warmup_steps)
    return o.learning_rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup_steps);
  if (o.schedule == "constant") return o.learning_rate;
  const double length = static_cast<double>(std::max<int64_t>(1, config.run.steps - 1 - o.warmup_steps));
  const double part = std::min(1.0, static_cast<double>(step - o.warmup_steps) / length);
  const double left = o.schedule == "linear" ? 1 - part : 0.5 * (1 + std::cos(std::numbers::pi * part));
  return o.final_rate + (o.learning_rate - o.final_rate) * left;
}

}  // namespace loom::train
