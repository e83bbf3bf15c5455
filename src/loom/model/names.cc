// Names as `transformers` has them, by a family's description.
#include "model/names.h"

#include <fmt/format.h>

#include "model/families/family.h"

namespace loom::model {
namespace {

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

/// The name without ".weight" or ".bias"; "{}" stands for each block's.
std::string stem_of(const ModelSpec& spec, Part weight, int64_t layer) {
  const FamilyDescription& own = description_of(spec.family);
  if (weight >= Part::final_norm_weight) return own.head_name(spec, weight);
  const bool embedding = weight <= Part::embedding_norm_weight;
  for (const PartName& one : embedding ? own.embedding_names : own.block_names)
    if (one.weight == weight)
      return embedding ? fmt::format("{}{}", own.body, one.name)
                       : fmt::format("{}{}{}.{}", own.body, own.blocks, layer, one.name);
  return {};
}

std::vector<std::string> other_names(const ModelSpec& spec, Part part, const std::string& name) {
  std::vector<std::string> others;
  for (const TiedName& tied : tied_names(spec))
    if (tied.name == name) others.push_back(tied.copy);
  const char* const newer = description_of(spec.family).newer_head_weight;
  if (newer != nullptr && part == Part::head_weight) others.push_back(newer);
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
  const char* const newer = description_of(spec.family).newer_head_weight;
  if (newer != nullptr) names.push_back({embedding, newer});
  if (spec.head_transform) names.push_back({stem_of(spec, Part::head_weight, 0) + ".bias", head + ".bias"});
  return names;
}

std::vector<Source> sources_of(const ModelSpec& spec, Part part, int64_t layer,
                               const std::vector<uint64_t>& shape, const std::vector<int64_t>& blocks) {
  const bool bias = is_bias(part);
  const Part weight = bias ? static_cast<Part>(static_cast<int>(part) - 1) : part;
  const std::string stem = stem_of(spec, weight, layer);
  const char* const suffix = bias ? ".bias" : ".weight";
  const bool projection = weight == Part::qkv_weight || weight == Part::projection_weight ||
                          weight == Part::up_weight || weight == Part::down_weight ||
                          weight == Part::dense_weight;
  const FamilyDescription& own = description_of(spec.family);
  const bool transposed = projection && !bias && own.transposed;
  const int64_t columns = static_cast<int64_t>(shape.back());
  const auto shape_for = [&](int64_t some) {
    std::vector<uint64_t> stored = shape;
    stored.back() = static_cast<uint64_t>(some);
    if (transposed) std::swap(stored.front(), stored.back());
    return stored;
  };
  // An untied head behind a transform computes with the decoder's bias; beside it stands the one that a tied
  // head computes with, which older versions wrote instead.
  if (part == Part::head_bias && spec.head_transform && !spec.tied) {
    const std::string outer = stem.substr(0, stem.rfind('.'));
    return {{outer + suffix, shape_for(columns), 0, columns, false, 0, {}},
            {stem + suffix, shape_for(columns), 0, columns, false, 0, {}}};
  }
  const size_t hole = stem.find("{}");
  if (hole == std::string::npos) {
    const bool fused = weight == Part::qkv_weight && own.fused_by_head;
    return {{stem + suffix, shape_for(columns), 0, columns, transposed,
             fused ? spec.attention().head_size : 0, other_names(spec, part, stem + suffix)}};
  }
  std::vector<Source> sources;
  int64_t first = 0;
  for (size_t which = 0; which < blocks.size(); ++which) {
    std::string name = stem;
    name.replace(hole, 2, weight == Part::up_weight ? own.gated[which] : own.qkv[which]);
    sources.push_back({name + suffix, shape_for(blocks[which]), first, blocks[which], transposed, 0, {}});
    first += blocks[which];
  }
  return sources;
}

std::string_view bare_name(std::string_view name) {
  for (const FamilyDescription* one : descriptions())
    if (name.starts_with(one->body)) return name.substr(std::string_view(one->body).size());
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
