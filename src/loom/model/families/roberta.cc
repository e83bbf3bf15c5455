// RoBERTa (Liu et al., 2019): BERT that counts positions from its padding, with one type of tokens.
#include "model/families/encoder.h"

namespace loom::model {
namespace {

void choose(ModelSpec& spec) {
  choose_encoder(spec);
  spec.token_types = 1;
  spec.dropout_before_pooler = spec.pooler;
  spec.head_activation = ops::Activation::gelu_erf;
}

void complete(ModelSpec& spec) {
  if (spec.padding < 0) spec.padding = 1;
  spec.first_position = int64_t{spec.padding} + 1;
}

std::string head_name(const ModelSpec& spec, Part weight) {
  const bool masked = spec.head_transform;
  switch (weight) {
    case Part::dense_weight: return masked ? "lm_head.dense" : "classifier.dense";
    case Part::transform_norm_weight: return "lm_head.layer_norm";
    default: return masked ? spec.tied ? "lm_head" : "lm_head.decoder" : "classifier.out_proj";
  }
}

}  // namespace

const FamilyDescription kRoberta = {
    .family = Family::roberta,
    .name = "roberta",
    .reads = Reads::both_ways,
    .classifies = true,
    .choose = choose,
    .complete = complete,
    .keys = encoder_keys("Roberta"),
    .read = read_encoder,
    .write = write_encoder,
    .body = "roberta.",
    .blocks = "encoder.layer.",
    .embedding_names = kEncoderEmbedding,
    .block_names = kEncoderBlock,
    .head_name = head_name,
    .qkv = kEncoderQkv,
};

}  // namespace loom::model
