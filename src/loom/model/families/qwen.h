// What Qwen2 and Qwen3 have in common beyond Llama: later layers may see the last tokens only.
//
// Thread safety: pure functions.
#pragma once

#include "model/families/llama.h"

namespace loom::model {

inline constexpr const char* kQwenRead[] = {
    "num_key_value_heads", "head_dim",       "rope_theta",        "rope_parameters", "rope_scaling",
    "use_sliding_window",  "sliding_window", "max_window_layers", "layer_types",     "attention_bias"};
inline constexpr int64_t kQwenKeyValueHeads = 32;

/// Which layers have a window: by a list, or else all layers from a number on, if any. Errors as
/// spec_from_config().
Status read_qwen_windows(const format::Json& config, ModelSpec& spec);
void write_qwen_windows(const ModelSpec& spec, format::Json& config);

}  // namespace loom::model
