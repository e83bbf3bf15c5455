// GPT-J (Wang and Komatsuzaki, 2021): rotary positions of neighbouring pairs, and one norm before both halves
// of a block.
#include "base/check.h"
#include "model/config_reader.h"
#include "model/families/gpt.h"
#include "model/objectives/objective.h"

namespace loom::model {
namespace {

constexpr const char* kRead[] = {"rotary_dim"};
constexpr PartName kBlock[] = {{Part::norm1_weight, "ln_1"},
                               {Part::qkv_weight, "attn.{}_proj"},
                               {Part::projection_weight, "attn.out_proj"},
                               {Part::up_weight, "mlp.fc_in"},
                               {Part::down_weight, "mlp.fc_out"}};

constexpr FamilyKeys keys() {
  FamilyKeys keys = gpt_keys("GPTJ", 0);
  keys.read = kRead;
  return keys;
}

void choose(ModelSpec& spec) {
  spec.residual = Residual::parallel_one_norm;
  spec.position = Position::rotary_interleaved;
  spec.qkv_bias = spec.projection_bias = false;
  spec.tied = false;
  spec.head_bias = !spec.objective().predicts_classes;
}

/// The family's own default where the key is missing; null turns whole heads.
Status read(const format::Json& config, ModelSpec& spec) {
  spec.rotary_dims = config.contains("rotary_dim") ? spec.attention().head_size : 64;
  ConfigReader keys(config);
  keys.optional<int64_t>("rotary_dim", spec.rotary_dims);
  LOOM_TRY(keys.status());
  return from_one_to("rotary_dim", spec.rotary_dims, kMostWidth);
}

void write(const ModelSpec& spec, format::Json& config) { config["rotary_dim"] = spec.rotary_dims; }

}  // namespace

const FamilyDescription kGptJ = {
    .family = Family::gptj,
    .name = "gptj",
    .reads = Reads::one_way,
    .classifies = true,
    .choose = choose,
    .complete = nullptr,
    .keys = keys(),
    .read = read,
    .write = write,
    .body = "transformer.",
    .blocks = "h.",
    .embedding_names = kGptEmbedding,
    .block_names = kBlock,
    .head_name = gpt_head,
};

}  // namespace loom::model
