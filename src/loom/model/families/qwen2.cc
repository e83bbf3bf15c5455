// Qwen2 and Qwen2.5 (Yang et al., 2024): a Llama with biases of queries, keys and values.
#include "base/check.h"
#include "model/families/qwen.h"

namespace loom::model {
namespace {

using format::Json;

/// A key of its relatives, which is read past in `transformers`.
constexpr const char* kWithoutMeaning[] = {"attention_bias"};
constexpr auto kRead = std::span(kQwenRead).first(std::size(kQwenRead) - 1);  // without that key

void choose(ModelSpec& spec) {
  choose_llama(spec);
  spec.qkv_bias = true;
}

Status read(const Json& config, ModelSpec& spec) {
  LOOM_TRY(read_qwen_windows(config, spec));
  return read_llama(config, kQwenKeyValueHeads, spec);
}

void write(const ModelSpec& spec, Json& config) {
  write_llama(spec, config);
  if (spec.head_size == 0) config.erase("head_dim");  // no key of its class, but read where a config has it
  write_qwen_windows(spec, config);
}

}  // namespace

constinit const FamilyDescription kQwen2 =
    like_llama(Family::qwen2, "qwen2", llama_keys("Qwen2", kRead, kWithoutMeaning, 32768, 22016), choose,
               complete_llama, read, write);

}  // namespace loom::model
