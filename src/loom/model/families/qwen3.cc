// Qwen3 (Yang et al., 2025): a Llama whose heads of queries and keys are normed. Mixtures of experts
// (qwen3_moe) are another family.
#include "base/check.h"
#include "model/config_reader.h"
#include "model/families/qwen.h"

namespace loom::model {
namespace {

using format::Json;

constexpr int64_t kHeadSize = 128;

void choose(ModelSpec& spec) {
  choose_llama(spec);
  spec.head_norms = true;
}

/// Heads have a size of their own unless the config has null for it.
Status read(const Json& config, ModelSpec& spec) {
  if (!config.contains("head_dim")) spec.head_size = kHeadSize;
  ConfigReader keys(config);
  keys.flag("attention_bias", spec.qkv_bias);
  LOOM_TRY(keys.status());
  spec.projection_bias = spec.qkv_bias;
  LOOM_TRY(read_qwen_windows(config, spec));
  return read_llama(config, kQwenKeyValueHeads, spec);
}

void write(const ModelSpec& spec, Json& config) {
  config["attention_bias"] = spec.qkv_bias;
  write_llama(spec, config);
  write_qwen_windows(spec, config);
}

}  // namespace

constinit const FamilyDescription kQwen3 =
    like_llama(Family::qwen3, "qwen3", llama_keys("Qwen3", kQwenRead, {}, 32768, 22016), choose,
               complete_llama, read, write);

}  // namespace loom::model
