// BERT (Devlin et al., 2019).
#include "model/families/encoder.h"

namespace loom::model {
namespace {

void choose(ModelSpec& spec) {
  choose_encoder(spec);
  spec.token_types = 2;
  spec.epsilon = 1e-12f;
}

void complete(ModelSpec& spec) {
  if (spec.padding < 0) spec.padding = 0;
}

/// The bias of the masked task's head has a name of its own.
std::string head_name(const ModelSpec& spec, Part weight) {
  const bool masked = spec.head_transform;
  switch (weight) {
    case Part::dense_weight: return masked ? "cls.predictions.transform.dense" : "bert.pooler.dense";
    case Part::transform_norm_weight: return "cls.predictions.transform.LayerNorm";
    default: return masked ? spec.tied ? "cls.predictions" : "cls.predictions.decoder" : "classifier";
  }
}

}  // namespace

const FamilyDescription kBert = {
    .family = Family::bert,
    .name = "bert",
    .reads = Reads::both_ways,
    .classifies = true,
    .choose = choose,
    .complete = complete,
    .keys = encoder_keys("Bert"),
    .read = read_encoder,
    .write = write_encoder,
    .body = "bert.",
    .blocks = "encoder.layer.",
    .embedding_names = kEncoderEmbedding,
    .block_names = kEncoderBlock,
    .head_name = head_name,
    .qkv = kEncoderQkv,
};

}  // namespace loom::model
