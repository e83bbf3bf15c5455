// Small models of every family and head.
#pragma once

#include <array>

#include "model/families.h"

namespace loom::testing {

inline constexpr std::array kEveryFamily = {
    model::Family::gpt2,  model::Family::gptj,  model::Family::gpt_neox, model::Family::gpt_neo,
    model::Family::bloom, model::Family::llama, model::Family::mistral,  model::Family::qwen2,
    model::Family::qwen3, model::Family::bert,  model::Family::roberta};

/// What is the family's own, in the sizes of another model; a window where its attention has one.
inline model::ModelSpec family_spec(model::Family family, model::Task task, const model::ModelSpec& sizes) {
  model::ModelSpec spec = *model::choices_of(family, task);
  spec.vocabulary = sizes.vocabulary;
  spec.context = sizes.context;
  spec.width = sizes.width;
  spec.layers = sizes.layers;
  spec.heads = sizes.heads;
  spec.feed_forward = sizes.feed_forward;
  spec.window = 5;
  if (spec.rms_norm && sizes.heads % 4 == 0) spec.key_value_heads = sizes.heads / 2;
  return spec;
}

}  // namespace loom::testing
