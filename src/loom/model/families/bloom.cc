// BLOOM (Le Scao et al., 2022): ALiBi, and a norm behind the embedding.
#include "model/families/gpt.h"

namespace loom::model {
namespace {

constexpr KeyAlias kAliases[] = {
    {"num_attention_heads", "n_head"}, {"num_hidden_layers", "n_layer"}, {"n_embed", "hidden_size"}};
constexpr Required kRequired[] = {{"apply_residual_connection_post_layernorm", "false"}};
constexpr const char* kWithoutMeaning[] = {"attention_softmax_in_fp32",
                                           "bias_dropout_fusion",
                                           "masked_softmax_fusion",
                                           "n_inner",
                                           "offset_alibi",
                                           "pretraining_pp",
                                           "pretraining_tp",
                                           "skip_bias_add",
                                           "skip_bias_add_qkv",
                                           "slow_but_exact",
                                           "classifier_dropout"};
/// There is no table of positions: a missing context is what BLOOM was trained with.
constexpr FamilyKeys kKeys = {.context = "seq_length",
                              .width = "hidden_size",
                              .layers = "n_layer",
                              .heads = "n_head",
                              .epsilon = "layer_norm_epsilon",
                              .residual_dropout = "hidden_dropout",
                              .attention_dropout = "attention_dropout",
                              .classes = "Bloom",
                              .aliases = kAliases,
                              .required = kRequired,
                              .without_meaning = kWithoutMeaning,
                              .missing_context = 2048};

constexpr PartName kEmbedding[] = {{Part::token_embedding, "word_embeddings"},
                                   {Part::embedding_norm_weight, "word_embeddings_layernorm"}};
constexpr PartName kBlock[] = {{Part::norm1_weight, "input_layernorm"},
                               {Part::qkv_weight, "self_attention.query_key_value"},
                               {Part::projection_weight, "self_attention.dense"},
                               {Part::norm2_weight, "post_attention_layernorm"},
                               {Part::up_weight, "mlp.dense_h_to_4h"},
                               {Part::down_weight, "mlp.dense_4h_to_h"}};

void choose(ModelSpec& spec) {
  spec.position = Position::alibi;
  spec.embedding_norm = true;
}

void write(const ModelSpec&, format::Json& config) {
  config["apply_residual_connection_post_layernorm"] = false;
}

}  // namespace

const FamilyDescription kBloom = {
    .family = Family::bloom,
    .name = "bloom",
    .reads = Reads::one_way,
    .classifies = false,
    .choose = choose,
    .complete = nullptr,
    .keys = kKeys,
    .read = nullptr,
    .write = write,
    .body = "transformer.",
    .blocks = "h.",
    .embedding_names = kEmbedding,
    .block_names = kBlock,
    .head_name = gpt_head,
    .fused_by_head = true,
};

}  // namespace loom::model
