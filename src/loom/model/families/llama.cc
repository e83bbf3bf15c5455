// Llama (Touvron et al., 2023, to Llama 3.3, 2024).
#include "model/families/llama.h"

#include "base/check.h"
#include "model/config_reader.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

using format::Json;

constexpr const char* kRead[] = {"num_key_value_heads", "head_dim",       "rope_theta", "rope_parameters",
                                 "rope_scaling",        "attention_bias", "mlp_bias"};
/// Products in slices, which have the same sum.
constexpr const char* kWithoutMeaning[] = {"pretraining_tp"};

Status read(const Json& config, ModelSpec& spec) {
  ConfigReader keys(config);
  keys.flag("attention_bias", spec.qkv_bias).flag("mlp_bias", spec.feed_forward_bias);
  LOOM_TRY(keys.status());
  spec.projection_bias = spec.qkv_bias;
  return read_llama(config, 0, spec);
}

void write(const ModelSpec& spec, Json& config) {
  config["attention_bias"] = spec.qkv_bias;
  config["mlp_bias"] = spec.feed_forward_bias;
  write_llama(spec, config);
}

/// Of the object `name`.
Status read_rope(const Json& given, const char* name, ModelSpec& spec) {
  if (!given.is_object()) return fail(Code::invalid_data, "{} is {}, must be an object", name, given.dump());
  std::string type = "default";
  double part = 1;
  ops::RotaryScaling scaling;
  ConfigReader keys(given);
  keys.optional<std::string>("type", type)
      .optional<std::string>("rope_type", type)
      .optional<float>("rope_theta", spec.rotary_base)
      .optional<double>("partial_rotary_factor", part);
  // Versions of `transformers` differ in which of the two they take.
  if (given.contains("type") && given.contains("rope_type") && given["type"] != given["rope_type"])
    return fail(Code::invalid_data, "type and rope_type of {} are {} and {}, must be the same", name,
                given["type"].dump(), given["rope_type"].dump());
  if (part != 1)
    return fail(Code::unsupported, "partial_rotary_factor of {} is {}; only 1 is supported", name, part);
  if (type == "linear" || type == "llama3") keys.required<float>("factor", scaling.factor);
  if (type == "llama3")
    keys.required<float>("low_freq_factor", scaling.low)
        .required<float>("high_freq_factor", scaling.high)
        .required<int64_t>("original_max_position_embeddings", scaling.context);
  LOOM_TRY(keys.status().in(name));
  if (type != "default" && type != "linear" && type != "llama3")
    return fail(Code::unsupported,
                "the rope_type of {} is \"{}\"; only \"default\", \"linear\" and \"llama3\" are supported",
                name, type);
  if (!(scaling.factor >= 1))
    return fail(Code::invalid_data, "the factor of {} is {}, must be at least 1", name, scaling.factor);
  if (type == "llama3" && !(scaling.low > 0 && scaling.low < scaling.high))
    return fail(
        Code::invalid_data,
        "low_freq_factor and high_freq_factor of {} are {} and {}, must be positive, the first below the "
        "second",
        name, scaling.low, scaling.high);
  if (type == "llama3")
    LOOM_TRY(from_one_to("original_max_position_embeddings", scaling.context, INT32_MAX).in(name));
  spec.rotary_scaling = scaling;
  return {};
}

Json rope_of(const ModelSpec& spec) {
  const ops::RotaryScaling& scaling = spec.rotary_scaling;
  if (scaling == ops::RotaryScaling()) return {{"rope_type", "default"}};
  if (scaling.context == 0) return {{"rope_type", "linear"}, {"factor", format::shortest(scaling.factor)}};
  return {{"rope_type", "llama3"},
          {"factor", format::shortest(scaling.factor)},
          {"low_freq_factor", format::shortest(scaling.low)},
          {"high_freq_factor", format::shortest(scaling.high)},
          {"original_max_position_embeddings", scaling.context}};
}

}  // namespace

std::string llama_head(const ModelSpec& spec, Part weight) {
  if (weight == Part::final_norm_weight) return "model.norm";
  return spec.objective().predicts_classes ? "score" : "lm_head";
}

void choose_llama(ModelSpec& spec) {
  spec.position = Position::rotary_half;
  spec.activation = ops::Activation::silu;
  spec.epsilon = 1e-6f;
  spec.rms_norm = spec.gated = true;
  spec.qkv_bias = spec.projection_bias = spec.feed_forward_bias = false;
  spec.tied = false;
}

void complete_llama(ModelSpec& spec) { spec.rotary_dims = spec.attention().head_size; }

Status read_llama(const Json& config, int64_t key_value_heads, ModelSpec& spec) {
  // Null stands for as many as of queries, whatever a missing key does.
  spec.key_value_heads = config.contains("num_key_value_heads") ? 0 : key_value_heads;
  ConfigReader keys(config);
  keys.optional<int64_t>("num_key_value_heads", spec.key_value_heads)
      .optional<int64_t>("head_dim", spec.head_size)
      .optional<float>("rope_theta", spec.rotary_base);
  LOOM_TRY(keys.status());
  if (is_given(config, "num_key_value_heads"))
    LOOM_TRY(from_one_to("num_key_value_heads", spec.key_value_heads, spec.heads));
  if (spec.key_value_heads > 0 && spec.heads % spec.key_value_heads != 0)
    return fail(Code::invalid_data, "num_key_value_heads is {}, must divide num_attention_heads, {}",
                spec.key_value_heads, spec.heads);
  if (is_given(config, "head_dim")) {
    LOOM_TRY(from_one_to("head_dim", spec.head_size, kMostWidth / spec.heads));
    if (spec.head_size % 2 != 0)
      return fail(Code::unsupported, "head_dim is {}; only even sizes are supported, whose pairs turn",
                  spec.head_size);
  }
  // The older object replaces the newer one, as it does in `transformers`.
  for (const char* const name : {"rope_scaling", "rope_parameters"})
    if (is_given(config, name) && !config[name].empty()) return read_rope(config[name], name, spec);
  return {};
}

void write_llama(const ModelSpec& spec, Json& config) {
  const AttentionGeometry attention = spec.attention();
  config["num_key_value_heads"] = attention.key_value_heads;
  config["head_dim"] = attention.head_size;
  const Json rope = rope_of(spec);
  config["rope_theta"] = format::shortest(spec.rotary_base);
  config["rope_scaling"] = spec.rotary_scaling == ops::RotaryScaling() ? Json() : rope;
  config["rope_parameters"] = rope;
  config["rope_parameters"]["rope_theta"] = format::shortest(spec.rotary_base);
}

constinit const FamilyDescription kLlama =
    like_llama(Family::llama, "llama", llama_keys("Llama", kRead, kWithoutMeaning, 2048, 11008), choose_llama,
               complete_llama, read, write);

}  // namespace loom::model
