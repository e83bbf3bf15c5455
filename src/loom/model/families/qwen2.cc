// Qwen2 and Qwen2.5 (Yang et al., 2024): a Llama with biases of queries, keys and values. Its later layers
// may see the last tokens only.
#include <algorithm>

#include "base/check.h"
#include "model/config_reader.h"
#include "model/families/llama.h"
#include "model/families/local_layers.h"

namespace loom::model {
namespace {

using format::Json;

constexpr const char* kRead[] = {"num_key_value_heads", "head_dim",          "rope_theta",
                                 "rope_parameters",     "rope_scaling",      "use_sliding_window",
                                 "sliding_window",      "max_window_layers", "layer_types"};
/// A key of its relatives, which is read past in `transformers`.
constexpr const char* kWithoutMeaning[] = {"attention_bias"};
constexpr int64_t kWindow = 4096, kKeyValueHeads = 32, kFullLayers = 28;
constexpr LayerKinds kLayers = {"layer_types", "full_attention", "sliding_attention"};

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
  if (is_given(config, kLayers.key)) {
    Result<std::vector<bool>> listed = local_layers_in(config, kLayers, spec.layers);
    LOOM_TRY(listed.status());
    local = listed.take();
  } else {
    for (int64_t layer = 0; layer < spec.layers; ++layer) local.push_back(slides && layer >= full);
  }
  if (std::ranges::find(local, true) == local.end()) return {};
  if (!slides)
    return fail(Code::invalid_data,
                "layer_types has \"{}\", but use_sliding_window is not true, so there is no window",
                kLayers.local);
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
  if (spec.head_size == 0) config.erase("head_dim");  // no key of its class, but read where a config has it
  int64_t full = 0;                                   // layers before the first local one
  while (full < spec.layers && spec.window_of(full) == 0) ++full;
  const bool slides = full < spec.layers;
  config["use_sliding_window"] = slides;
  config["sliding_window"] = slides ? Json(spec.window) : Json();
  config["max_window_layers"] = full;
  config[kLayers.key] = local_layers_of(spec, kLayers);
}

}  // namespace

constinit const FamilyDescription kQwen2 =
    like_llama(Family::qwen2, "qwen2", llama_keys("Qwen2", kRead, kWithoutMeaning, 32768, 22016), choose,
               complete_llama, read, write);

}  // namespace loom::model
