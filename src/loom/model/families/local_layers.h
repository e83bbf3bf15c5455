// Layers whose tokens see a window only, as a config.json lists them: a name for each layer.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <vector>

#include "format/json_file.h"
#include "model/spec.h"

namespace loom::model {

struct LayerKinds {
  const char *key, *global, *local;
};

/// Whether each of `layers` is local. Errors: invalid_data, with the two names.
inline Result<std::vector<bool>> local_layers_in(const format::Json& config, const LayerKinds& kinds,
                                                 int64_t layers) {
  const format::Json& listed = config[kinds.key];
  const bool right = listed.is_array() && static_cast<int64_t>(listed.size()) == layers &&
                     std::all_of(listed.begin(), listed.end(), [&](const format::Json& kind) {
                       return kind == kinds.global || kind == kinds.local;
                     });
  if (!right)
    return fail(Code::invalid_data, "{} must have \"{}\" or \"{}\" for each of {} layers", kinds.key,
                kinds.global, kinds.local, layers);
  std::vector<bool> local;
  for (const format::Json& kind : listed) local.push_back(kind == kinds.local);
  return local;
}

inline format::Json local_layers_of(const ModelSpec& spec, const LayerKinds& kinds) {
  format::Json listed = format::Json::array();
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    listed.push_back(spec.window_of(layer) > 0 ? kinds.local : kinds.global);
  return listed;
}

}  // namespace loom::model
