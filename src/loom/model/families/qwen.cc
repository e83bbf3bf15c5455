#include "model/families/qwen.h"

#include <algorithm>

#include "base/check.h"
#include "model/config_reader.h"
#include "model/families/local_layers.h"

namespace loom::model {
namespace {

using format::Json;

constexpr int64_t kWindow = 4096, kFullLayers = 28;
constexpr LayerKinds kLayers = {"layer_types", "full_attention", "sliding_attention"};

}  // namespace

Status read_qwen_windows(const Json& config, ModelSpec& spec) {
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

void write_qwen_windows(const ModelSpec& spec, Json& config) {
  int64_t full = 0;  // layers before the first local one
  while (full < spec.layers && spec.window_of(full) == 0) ++full;
  const bool slides = full < spec.layers;
  config["use_sliding_window"] = slides;
  config["sliding_window"] = slides ? Json(spec.window) : Json();
  config["max_window_layers"] = full;
  config[kLayers.key] = local_layers_of(spec, kLayers);
}

}  // namespace loom::model
