// GPT-2 (Radford et al., 2019): a ModelSpec's own choices.
#include "model/families/gpt.h"

namespace loom::model {
namespace {

constexpr Required kRequired[] = {{"scale_attn_weights", "true"},
                                  {"scale_attn_by_inverse_layer_idx", "false"}};
constexpr PartName kBlock[] = {
    {Part::norm1_weight, "ln_1"}, {Part::qkv_weight, "attn.c_attn"}, {Part::projection_weight, "attn.c_proj"},
    {Part::norm2_weight, "ln_2"}, {Part::up_weight, "mlp.c_fc"},     {Part::down_weight, "mlp.c_proj"}};

constexpr FamilyKeys keys() {
  FamilyKeys keys = gpt_keys("GPT2", 0.1f);
  keys.usual_class = "LMHeadModel";
  keys.required = kRequired;
  return keys;
}

void write(const ModelSpec& spec, format::Json& config) { config["n_ctx"] = spec.context; }

}  // namespace

const FamilyDescription kGpt2 = {
    .family = Family::gpt2,
    .name = "gpt2",
    .reads = Reads::one_way,
    .classifies = false,
    .choose = nullptr,
    .complete = nullptr,
    .keys = keys(),
    .read = nullptr,
    .write = write,
    .body = "transformer.",
    .blocks = "h.",
    .embedding_names = kGptEmbedding,
    .block_names = kBlock,
    .head_name = gpt_head,
    .transposed = false,
};

}  // namespace loom::model
