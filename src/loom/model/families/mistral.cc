// Mistral (Jiang et al., 2023): a Llama whose tokens see the last ones only.
#include "base/check.h"
#include "model/config_reader.h"
#include "model/families/llama.h"

namespace loom::model {
namespace {

using format::Json;

constexpr const char* kRead[] = {"num_key_value_heads", "head_dim",     "rope_theta",
                                 "rope_parameters",     "rope_scaling", "sliding_window"};
/// Keys of its relatives, which are read past in `transformers`.
constexpr const char* kWithoutMeaning[] = {"attention_bias", "layer_types"};
constexpr int64_t kWindow = 4096, kKeyValueHeads = 8;

void choose(ModelSpec& spec) {
  choose_llama(spec);
  spec.window = kWindow;
}

void complete(ModelSpec& spec) {
  complete_llama(spec);
  if (spec.window > 0 && spec.layers <= kMostLayers)
    spec.local.assign(static_cast<size_t>(spec.layers), true);
}

/// Null: a token sees all before it.
Status read(const Json& config, ModelSpec& spec) {
  if (config.contains("sliding_window")) spec.window = 0;
  ConfigReader keys(config);
  keys.optional<int64_t>("sliding_window", spec.window);
  LOOM_TRY(keys.status());
  if (is_given(config, "sliding_window")) LOOM_TRY(from_one_to("sliding_window", spec.window, INT32_MAX));
  return read_llama(config, kKeyValueHeads, spec);
}

void write(const ModelSpec& spec, Json& config) {
  write_llama(spec, config);
  config["sliding_window"] = spec.window > 0 ? Json(spec.window) : Json();
}

}  // namespace

constinit const FamilyDescription kMistral =
    like_llama(Family::mistral, "mistral", llama_keys("Mistral", kRead, kWithoutMeaning, 131072, 14336),
               choose, complete, read, write);

}  // namespace loom::model
