// GPT-Neo (Black et al., 2021): scores are not scaled, and every second layer sees a window of tokens only.
#include <algorithm>

#include "model/config_reader.h"
#include "model/families/gpt.h"
#include "model/families/local_layers.h"

namespace loom::model {
namespace {

using format::Json;

constexpr KeyAlias kAliases[] = {{"num_attention_heads", "num_heads"}, {"num_hidden_layers", "num_layers"}};
constexpr const char* kRead[] = {"window_size", "attention_types", "attention_layers"};
constexpr FamilyKeys kKeys = {.context = "max_position_embeddings",
                              .width = "hidden_size",
                              .layers = "num_layers",
                              .heads = "num_heads",
                              .feed_forward = "intermediate_size",
                              .activation = "activation_function",
                              .epsilon = "layer_norm_epsilon",
                              .embedding_dropout = "embed_dropout",
                              .residual_dropout = "resid_dropout",
                              .attention_dropout = "attention_dropout",
                              .classes = "GPTNeo",
                              .aliases = kAliases,
                              .read = kRead,
                              .without_meaning = kGptWithoutMeaning};
constexpr int64_t kWindow = 256;
constexpr LayerKinds kLayers = {"attention_layers", "global", "local"};

constexpr PartName kBlock[] = {{Part::norm1_weight, "ln_1"},
                               {Part::qkv_weight, "attn.attention.{}_proj"},
                               {Part::projection_weight, "attn.attention.out_proj"},
                               {Part::norm2_weight, "ln_2"},
                               {Part::up_weight, "mlp.c_fc"},
                               {Part::down_weight, "mlp.c_proj"}};

void choose(ModelSpec& spec) {
  spec.scaled_scores = false;
  spec.qkv_bias = false;
}

void complete(ModelSpec& spec) {
  if (!spec.local.empty() || spec.layers > kMostLayers) return;
  if (spec.window == 0) spec.window = kWindow;
  for (int64_t layer = 0; layer < spec.layers; ++layer) spec.local.push_back(layer % 2 == 1);
}

/// Layers from [[kinds], times], to be repeated; whether they are so.
bool read_kinds(const Json& types, ModelSpec& spec) {
  if (!types.is_array()) return false;
  for (const Json& group : types) {
    if (!group.is_array() || group.size() != 2 || !group[0].is_array() || !group[1].is_number_integer())
      return false;
    // No kinds at all would be no layers, however often.
    const double times = group[1].get<double>();
    if (group[0].empty() || times < 1 || times > static_cast<double>(spec.layers)) return false;
    for (int64_t time = 0; time < static_cast<int64_t>(times); ++time)
      for (const Json& kind : group[0]) {
        if (kind != "global" && kind != "local") return false;
        if (static_cast<int64_t>(spec.local.size()) > spec.layers) return false;
        spec.local.push_back(kind == "local");
      }
  }
  return true;
}

/// GPT-Neo's kinds of layers, as kinds to be repeated or by layer.
Status read_local_layers(const Json& config, ModelSpec& spec) {
  const auto wrong = [] {
    return fail(Code::invalid_data,
                "attention_types must be as in [[[\"global\", \"local\"], 12]], with \"global\" and "
                "\"local\", and as many "
                "as there are layers");
  };
  spec.window = kWindow;
  ConfigReader keys(config);
  keys.optional<int64_t>("window_size", spec.window);
  LOOM_TRY(keys.status());
  if (is_given(config, "attention_types") && !read_kinds(config["attention_types"], spec)) return wrong();
  if (!is_given(config, kLayers.key)) return {};
  // The list by layer wins over what it is made from, as it does in `transformers`.
  Result<std::vector<bool>> local = local_layers_in(config, kLayers, spec.layers);
  LOOM_TRY(local.status());
  spec.local = local.take();
  return {};
}

void write(const ModelSpec& spec, Json& config) {
  config["window_size"] = spec.window;
  config[kLayers.key] = local_layers_of(spec, kLayers);
  config["attention_types"] = Json::array({Json::array({local_layers_of(spec, kLayers), 1})});
}

}  // namespace

const FamilyDescription kGptNeo = {
    .family = Family::gpt_neo,
    .name = "gpt_neo",
    .reads = Reads::one_way,
    .classifies = false,
    .choose = choose,
    .complete = complete,
    .keys = kKeys,
    .read = read_local_layers,
    .write = write,
    .body = "transformer.",
    .blocks = "h.",
    .embedding_names = kGptEmbedding,
    .block_names = kBlock,
    .head_name = gpt_head,
};

}  // namespace loom::model
