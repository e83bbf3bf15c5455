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

constexpr FamilyKeys keys() {
  FamilyKeys keys = llama_keys("Mistral", kRead, 131072, 14336);
  keys.without_meaning = kWithoutMeaning;
  return keys;
}

void choose(ModelSpec& spec) {
  choose_llama(spec);
  spec.window = kWindow;
}

void complete(ModelSpec& spec) {
  complete_llama(spec);
  if (spec.layers <= kMostLayers) spec.local.assign(static_cast<size_t>(spec.layers), true);
  if (spec.window == 0) spec.local.clear();
}

/// Null: a token sees all before it.
Status read(const Json& config, ModelSpec& spec) {
  if (config.contains("sliding_window")) spec.window = 0;
  ConfigReader keys(config);
  keys.optional<int64_t>("sliding_window", spec.window);
  LOOM_TRY(keys.status());
  if (config.contains("sliding_window") && !config["sliding_window"].is_null())
    LOOM_TRY(from_one_to("sliding_window", spec.window, INT32_MAX));
  return read_llama(config, kKeyValueHeads, spec);
}

void write(const ModelSpec& spec, Json& config) {
  write_llama(spec, config);
  config["sliding_window"] = spec.window > 0 ? Json(spec.window) : Json();
}

}  // namespace

const FamilyDescription kMistral = {
    .family = Family::mistral,
    .name = "mistral",
    .reads = Reads::one_way,
    .classifies = true,
    .choose = choose,
    .complete = complete,
    .keys = keys(),
    .read = read,
    .write = write,
    .body = "model.",
    .blocks = "layers.",
    .embedding_names = kLlamaEmbedding,
    .block_names = kLlamaBlock,
    .head_name = llama_head,
};

}  // namespace loom::model
