// Qwen2 and Qwen2.5 (Yang et al., 2024): a Llama with biases of queries, keys and values. Its later layers
// may see the last tokens only.
#include <algorithm>

#include "base/check.h"
#include "model/config_reader.h"
#include "model/families/llama.h"

namespace loom::model {
namespace {

using format::Json;

constexpr const char* kRead[] = {"num_key_value_heads", "head_dim",          "rope_theta",
                                 "rope_parameters",     "rope_scaling",      "use_sliding_window",
                                 "sliding_window",      "max_window_layers", "layer_types"};
/// A key of its relatives, which is read past in `transformers`.
constexpr const char* kWithoutMeaning[] = {"attention_bias"};
constexpr int64_t kWindow = 4096, kKeyValueHeads = 32, kFullLayers = 28;
constexpr const char kFull[] = "full_attention", kSliding[] = "sliding_attention";

constexpr FamilyKeys keys() {
  FamilyKeys keys = llama_keys("Qwen2", kRead, 32768, 22016);
  keys.without_meaning = kWithoutMeaning;
  return keys;
}

void choose(ModelSpec& spec) {
  choose_llama(spec);
  spec.qkv_bias = true;
}

/// The list by layer, or else all layers from a number on, if any.
Status read_local_layers(const Json& config, ModelSpec& spec) {
  bool slides = false;
  int64_t window = config.contains("sliding_window") ? 0 : kWindow, full = kFullLayers;
  ConfigReader keys(config);
  keys.optional<bool>("use_sliding_window", slides)
      .optional<int64_t>("sliding_window", window)
      .optional<int64_t>("max_window_layers", full);
  LOOM_TRY(keys.status());
  std::vector<bool> local;
  if (config.contains("layer_types") && !config["layer_types"].is_null()) {
    const Json& kinds = config["layer_types"];
    const bool right =
        kinds.is_array() && static_cast<int64_t>(kinds.size()) == spec.layers &&
        std::ranges::all_of(kinds, [](const Json& kind) { return kind == kFull || kind == kSliding; });
    if (!right)
      return fail(Code::invalid_data, "layer_types must have \"{}\" or \"{}\" for each of {} layers", kFull,
                  kSliding, spec.layers);
    for (const Json& kind : kinds) local.push_back(kind == kSliding);
  } else {
    for (int64_t layer = 0; layer < spec.layers; ++layer) local.push_back(slides && layer >= full);
  }
  if (std::ranges::find(local, true) == local.end()) return {};
  if (!slides)
    return fail(Code::invalid_data,
                "layer_types has \"{}\", but use_sliding_window is not true, so there is no window",
                kSliding);
  LOOM_TRY(from_one_to("sliding_window", window, INT32_MAX));
  spec.window = window;
  spec.local = std::move(local);
  return {};
}

Status read(const Json& config, ModelSpec& spec) {
  LOOM_TRY(read_local_layers(config, spec));
  return read_llama(config, kKeyValueHeads, spec);
}

void write(const ModelSpec& spec, Json& config) {
  write_llama(spec, config);
  Json kinds = Json::array();
  int64_t full = 0;  // layers before the first local one
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const bool local = spec.window_of(layer) > 0;
    if (!local && full == layer) ++full;
    kinds.push_back(local ? kSliding : kFull);
  }
  const bool slides = full < spec.layers;
  config["use_sliding_window"] = slides;
  config["sliding_window"] = slides ? Json(spec.window) : Json();
  config["max_window_layers"] = full;
  config["layer_types"] = kinds;
}

}  // namespace

const FamilyDescription kQwen2 = {
    .family = Family::qwen2,
    .name = "qwen2",
    .reads = Reads::one_way,
    .classifies = true,
    .choose = choose,
    .complete = complete_llama,
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
