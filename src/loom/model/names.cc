// Names as `transformers` has them. BLOOM's and GPT-NeoX's blocks share most of theirs, as do BERT's and
// RoBERTa's.
#include "model/names.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "model/families.h"

namespace loom::model {
namespace {

constexpr std::array<std::string_view, 4> kBodies = {"transformer.", "gpt_neox.", "bert.", "roberta."};

/// "weight" of a weight's part and "bias" of that behind it, so that names are listed once.
struct Named {
  Part part;
  const char* name;
};

constexpr Named kGpt2[] = {
    {Part::norm1_weight, "ln_1"}, {Part::qkv_weight, "attn.c_attn"}, {Part::projection_weight, "attn.c_proj"},
    {Part::norm2_weight, "ln_2"}, {Part::up_weight, "mlp.c_fc"},     {Part::down_weight, "mlp.c_proj"}};
constexpr Named kGptJ[] = {{Part::norm1_weight, "ln_1"},
                           {Part::qkv_weight, "attn.{}_proj"},
                           {Part::projection_weight, "attn.out_proj"},
                           {Part::up_weight, "mlp.fc_in"},
                           {Part::down_weight, "mlp.fc_out"}};
constexpr Named kGptNeo[] = {{Part::norm1_weight, "ln_1"},
                             {Part::qkv_weight, "attn.attention.{}_proj"},
                             {Part::projection_weight, "attn.attention.out_proj"},
                             {Part::norm2_weight, "ln_2"},
                             {Part::up_weight, "mlp.c_fc"},
                             {Part::down_weight, "mlp.c_proj"}};
constexpr Named kNeoX[] = {
    {Part::norm1_weight, "input_layernorm"},      {Part::qkv_weight, "attention.query_key_value"},
    {Part::projection_weight, "attention.dense"}, {Part::norm2_weight, "post_attention_layernorm"},
    {Part::up_weight, "mlp.dense_h_to_4h"},       {Part::down_weight, "mlp.dense_4h_to_h"}};
constexpr Named kBloom[] = {{Part::norm1_weight, "input_layernorm"},
                            {Part::qkv_weight, "self_attention.query_key_value"},
                            {Part::projection_weight, "self_attention.dense"},
                            {Part::norm2_weight, "post_attention_layernorm"},
                            {Part::up_weight, "mlp.dense_h_to_4h"},
                            {Part::down_weight, "mlp.dense_4h_to_h"}};
constexpr Named kBert[] = {{Part::norm1_weight, "attention.output.LayerNorm"},
                           {Part::qkv_weight, "attention.self.{}"},
                           {Part::projection_weight, "attention.output.dense"},
                           {Part::norm2_weight, "output.LayerNorm"},
                           {Part::up_weight, "intermediate.dense"},
                           {Part::down_weight, "output.dense"}};

struct BlockNames {
  std::string prefix;
  std::span<const Named> names;
};

BlockNames block_names(Family family, int64_t layer) {
  switch (family) {
    case Family::gpt2: return {fmt::format("transformer.h.{}.", layer), kGpt2};
    case Family::gptj: return {fmt::format("transformer.h.{}.", layer), kGptJ};
    case Family::gpt_neo: return {fmt::format("transformer.h.{}.", layer), kGptNeo};
    case Family::bloom: return {fmt::format("transformer.h.{}.", layer), kBloom};
    case Family::gpt_neox: return {fmt::format("gpt_neox.layers.{}.", layer), kNeoX};
    case Family::bert: return {fmt::format("bert.encoder.layer.{}.", layer), kBert};
    case Family::roberta: return {fmt::format("roberta.encoder.layer.{}.", layer), kBert};
  }
  return {};
}

bool is_bias(Part part) {
  switch (part) {
    case Part::embedding_norm_bias:
    case Part::norm1_bias:
    case Part::qkv_bias:
    case Part::projection_bias:
    case Part::norm2_bias:
    case Part::up_bias:
    case Part::down_bias:
    case Part::final_norm_bias:
    case Part::dense_bias:
    case Part::transform_norm_bias:
    case Part::head_bias: return true;
    default: return false;
  }
}

/// Names of the embedding of BERT and RoBERTa.
std::string encoder_embedding(Family family, Part weight) {
  const std::string prefix = fmt::format("{}.embeddings.", family_name(family));
  switch (weight) {
    case Part::token_embedding: return prefix + "word_embeddings";
    case Part::position_embedding: return prefix + "position_embeddings";
    case Part::type_embedding: return prefix + "token_type_embeddings";
    default: return prefix + "LayerNorm";
  }
}

std::string embedding_name(Family family, Part weight) {
  switch (family) {
    case Family::bert:
    case Family::roberta: return encoder_embedding(family, weight);
    case Family::gpt_neox: return "gpt_neox.embed_in";
    case Family::bloom:
      return weight == Part::token_embedding ? "transformer.word_embeddings"
                                             : "transformer.word_embeddings_layernorm";
    default: return weight == Part::token_embedding ? "transformer.wte" : "transformer.wpe";
  }
}

/// The head of BERT: that of the masked task, whose bias has a name of its own, and the classifier.
std::string bert_head(const ModelSpec& spec, Part weight) {
  const bool masked = spec.task == Task::masked;
  switch (weight) {
    case Part::dense_weight: return masked ? "cls.predictions.transform.dense" : "bert.pooler.dense";
    case Part::transform_norm_weight: return "cls.predictions.transform.LayerNorm";
    default: return masked ? spec.tied ? "cls.predictions" : "cls.predictions.decoder" : "classifier";
  }
}

std::string roberta_head(const ModelSpec& spec, Part weight) {
  const bool masked = spec.task == Task::masked;
  switch (weight) {
    case Part::dense_weight: return masked ? "lm_head.dense" : "classifier.dense";
    case Part::transform_norm_weight: return "lm_head.layer_norm";
    default: return masked ? spec.tied ? "lm_head" : "lm_head.decoder" : "classifier.out_proj";
  }
}

std::string head_name(const ModelSpec& spec, Part weight) {
  if (spec.family == Family::bert) return bert_head(spec, weight);
  if (spec.family == Family::roberta) return roberta_head(spec, weight);
  if (weight == Part::final_norm_weight)
    return spec.family == Family::gpt_neox ? "gpt_neox.final_layer_norm" : "transformer.ln_f";
  if (spec.task == Task::classification) return "score";
  return spec.family == Family::gpt_neox ? "embed_out" : "lm_head";
}

/// The name without ".weight" or ".bias"; "{}" stands for q, k and v.
std::string stem_of(const ModelSpec& spec, Part weight, int64_t layer) {
  if (weight <= Part::embedding_norm_weight) return embedding_name(spec.family, weight);
  if (weight >= Part::final_norm_weight) return head_name(spec, weight);
  const BlockNames block = block_names(spec.family, layer);
  for (const Named& named : block.names)
    if (named.part == weight) return block.prefix + named.name;
  return {};
}

/// GPT-NeoX's head has a newer name in the classes of `transformers` 5, which files seldom have.
constexpr const char* kNewerNeoXHead = "lm_head.weight";

std::vector<std::string> other_names(const ModelSpec& spec, Part part, const std::string& name) {
  std::vector<std::string> others;
  for (const TiedName& tied : tied_names(spec))
    if (tied.name == name) others.push_back(tied.copy);
  if (spec.family == Family::gpt_neox && part == Part::head_weight) others.push_back(kNewerNeoXHead);
  return others;
}

}  // namespace

std::vector<TiedName> tied_names(const ModelSpec& spec) {
  if (!spec.tied) return {};
  const std::string embedding = stem_of(spec, Part::token_embedding, 0) + ".weight";
  ModelSpec apart = spec;
  apart.tied = false;
  const std::string head = stem_of(apart, Part::head_weight, 0);
  std::vector<TiedName> names = {{embedding, head + ".weight"}};
  if (spec.family == Family::gpt_neox) names.push_back({embedding, kNewerNeoXHead});
  if (spec.task == Task::masked)
    names.push_back({stem_of(spec, Part::head_weight, 0) + ".bias", head + ".bias"});
  return names;
}

std::vector<Source> sources_of(const ModelSpec& spec, Part part, int64_t layer,
                               const std::vector<uint64_t>& shape) {
  const bool bias = is_bias(part);
  const Part weight = bias ? static_cast<Part>(static_cast<int>(part) - 1) : part;
  const std::string stem = stem_of(spec, weight, layer);
  const char* const suffix = bias ? ".bias" : ".weight";
  const bool projection = weight == Part::qkv_weight || weight == Part::projection_weight ||
                          weight == Part::up_weight || weight == Part::down_weight ||
                          weight == Part::dense_weight;
  const bool transposed = projection && !bias && spec.family != Family::gpt2;
  const int64_t columns = static_cast<int64_t>(shape.back());
  const auto shape_for = [&](int64_t some) {
    std::vector<uint64_t> stored = shape;
    stored.back() = static_cast<uint64_t>(some);
    if (transposed) std::swap(stored.front(), stored.back());
    return stored;
  };
  // An untied head of the masked task computes with the decoder's bias; beside it stands the one that a tied
  // head computes with, which older versions wrote instead.
  if (part == Part::head_bias && spec.task == Task::masked && !spec.tied) {
    const std::string outer = stem.substr(0, stem.rfind('.'));
    return {{outer + suffix, shape_for(columns), 0, columns, false, 0, {}},
            {stem + suffix, shape_for(columns), 0, columns, false, 0, {}}};
  }
  const size_t hole = stem.find("{}");
  if (hole == std::string::npos) {
    const bool fused =
        weight == Part::qkv_weight && (spec.family == Family::bloom || spec.family == Family::gpt_neox);
    return {{stem + suffix, shape_for(columns), 0, columns, transposed, fused ? spec.head_size() : 0,
             other_names(spec, part, stem + suffix)}};
  }
  const bool spelled = spec.family == Family::bert || spec.family == Family::roberta;
  constexpr const char* kLong[] = {"query", "key", "value"};
  constexpr const char* kShort[] = {"q", "k", "v"};
  std::vector<Source> sources;
  for (int which = 0; which < 3; ++which) {
    std::string name = stem;
    name.replace(hole, 2, spelled ? kLong[which] : kShort[which]);
    sources.push_back(
        {name + suffix, shape_for(columns / 3), which * columns / 3, columns / 3, transposed, 0, {}});
  }
  return sources;
}

std::string_view bare_name(std::string_view name) {
  for (const std::string_view body : kBodies)
    if (name.starts_with(body)) return name.substr(body.size());
  return name;
}

std::string older_name(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {{"weight", "gamma"},
                                                                        {"bias", "beta"}};
  for (const auto& [now, then] : kRenamed)
    if (name.ends_with("LayerNorm." + std::string(now)))
      return std::string(name.substr(0, name.size() - now.size())) + std::string(then);
  return {};
}

}  // namespace loom::model
