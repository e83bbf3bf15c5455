// GPT-NeoX (Black et al., 2022): rotary positions of half-split pairs, and a norm for each half of a parallel
// block.
#include <cmath>

#include "model/config_reader.h"
#include "model/families/family.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

using format::Json;

constexpr const char* kRead[] = {"use_parallel_residual", "attention_bias",  "rotary_pct",
                                 "rotary_emb_base",       "rope_parameters", "head_dim"};
constexpr Required kRequired[] = {{"rope_scaling", "null"}};
constexpr const char* kWithoutMeaning[] = {"attention_probs_dropout_prob", "hidden_dropout_prob",
                                           "masked_softmax_fusion",        "classifier_dropout",
                                           "partial_rotary_factor",        "rope_theta"};
constexpr const char* kNested[] = {"rope_parameters"};
constexpr const char* kOfRope[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
constexpr FamilyKeys kKeys = {.context = "max_position_embeddings",
                              .width = "hidden_size",
                              .layers = "num_hidden_layers",
                              .heads = "num_attention_heads",
                              .feed_forward = "intermediate_size",
                              .activation = "hidden_act",
                              .epsilon = "layer_norm_eps",
                              .embedding_dropout = "hidden_dropout",
                              .residual_dropout = "hidden_dropout",
                              .attention_dropout = "attention_dropout",
                              .classes = "GPTNeoX",
                              .read = kRead,
                              .required = kRequired,
                              .without_meaning = kWithoutMeaning,
                              .nested = kNested,
                              .nested_read = kOfRope,
                              .missing_feed_forward = 24576};

constexpr PartName kEmbedding[] = {{Part::token_embedding, "embed_in"}};
constexpr PartName kBlock[] = {
    {Part::norm1_weight, "input_layernorm"},      {Part::qkv_weight, "attention.query_key_value"},
    {Part::projection_weight, "attention.dense"}, {Part::norm2_weight, "post_attention_layernorm"},
    {Part::up_weight, "mlp.dense_h_to_4h"},       {Part::down_weight, "mlp.dense_4h_to_h"}};

std::string head_name(const ModelSpec& spec, Part weight) {
  if (weight == Part::final_norm_weight) return "gpt_neox.final_layer_norm";
  return spec.objective().predicts_classes ? "score" : "embed_out";
}

void choose(ModelSpec& spec) {
  spec.residual = Residual::parallel_two_norms;
  spec.position = Position::rotary_half;
  spec.activation = ops::Activation::gelu_erf;
  spec.tied = false;
}

/// As transformers reckons: whole elements of a head, the rest cut off.
int64_t turned_dims(int64_t head_size, double part) {
  return static_cast<int64_t>(static_cast<double>(head_size) * part);
}
/// What turned_dims() gives back.
double turned_part(const ModelSpec& spec) {
  double part = static_cast<double>(spec.rotary_dims) / static_cast<double>(spec.attention().head_size);
  while (turned_dims(spec.attention().head_size, part) < spec.rotary_dims) part = std::nextafter(part, 2.0);
  return part;
}

Status read_rope(const Json& config, ModelSpec& spec) {
  double part = 0.25;
  ConfigReader old_keys(config);  // which fill in what the newer object leaves out
  old_keys.optional<double>("rotary_pct", part).optional<float>("rotary_emb_base", spec.rotary_base);
  LOOM_TRY(old_keys.status());
  const bool nested = is_given(config, "rope_parameters");
  if (nested) {
    const Json& given = config["rope_parameters"];
    if (!given.is_object())
      return fail(Code::invalid_data, "rope_parameters is {}, must be an object", given.dump());
    std::string type = "default";
    ConfigReader keys(given);
    keys.optional<std::string>("type", type)
        .optional<std::string>("rope_type", type)
        .optional<double>("partial_rotary_factor", part)
        .optional<float>("rope_theta", spec.rotary_base);
    LOOM_TRY(keys.status());
    if (type != "default")
      return fail(Code::unsupported, "rope_type is \"{}\"; only \"default\" is supported", type);
  }
  const char* const key = nested ? "rope_parameters.partial_rotary_factor" : "rotary_pct";
  if (!(part > 0 && part <= 1))
    return fail(Code::invalid_data,
                "{} is {}, must be above 0 and at most 1: the part of a head that is turned", key, part);
  if (spec.width % spec.heads != 0) return {};  // refused later, by the names of both
  int64_t head_size = spec.attention().head_size;
  ConfigReader keys(config);
  keys.optional<int64_t>("head_dim", head_size);
  LOOM_TRY(keys.status());
  if (head_size != spec.attention().head_size)
    return fail(Code::unsupported, "head_dim is {}; only the width over the heads, {}, is supported",
                head_size, spec.attention().head_size);
  spec.rotary_dims = turned_dims(head_size, part);
  if (spec.rotary_dims > 0 && spec.rotary_dims % 2 == 0) return {};
  return fail(Code::unsupported,
              "{} is {}, which turns {} of the {} elements of a head; must be an even number of them", key,
              part, spec.rotary_dims, head_size);
}

Status read(const Json& config, ModelSpec& spec) {
  ConfigReader keys(config);
  bool parallel = true;
  keys.flag("use_parallel_residual", parallel).flag("attention_bias", spec.qkv_bias);
  spec.residual = parallel ? Residual::parallel_two_norms : Residual::serial;
  spec.projection_bias = spec.qkv_bias;
  LOOM_TRY(read_rope(config, spec));
  return keys.status();
}

void write(const ModelSpec& spec, Json& config) {
  const double part = turned_part(spec);
  config["use_parallel_residual"] = spec.residual != Residual::serial;
  config["attention_bias"] = spec.qkv_bias;
  config["rotary_pct"] = part;
  config["rotary_emb_base"] = spec.rotary_base;
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", spec.rotary_base}, {"partial_rotary_factor", part}};
}

}  // namespace

const FamilyDescription kGptNeoX = {
    .family = Family::gpt_neox,
    .name = "gpt_neox",
    .reads = Reads::one_way,
    .classifies = false,
    .choose = choose,
    .complete = nullptr,
    .keys = kKeys,
    .read = read,
    .write = write,
    .body = "gpt_neox.",
    .blocks = "layers.",
    .embedding_names = kEmbedding,
    .block_names = kBlock,
    .head_name = head_name,
    .fused_by_head = true,
    .newer_head_weight = "lm_head.weight",  // in the classes of `transformers` 5, which files seldom have
};

}  // namespace loom::model
