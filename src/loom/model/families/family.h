// FamilyDescription: all that makes one family of models: its choices, the keys of its config.json and the
// names of its tensors, after the classes of `transformers`. Each family's is one file of this folder;
// nothing else names a family, but for the list in families.cc.
//
// Thread safety: constants; pure functions.
#pragma once

#include <array>
#include <span>
#include <string>

#include "model/config_keys.h"
#include "model/units.h"

namespace loom::model {

/// Which tokens one sees: those up to its own, or all of its sequence.
enum class Reads { one_way, both_ways };

/// What a weight's tensor is called, without ".weight"; its bias follows. "{}" stands for q, k and v, or for
/// gate and up.
struct PartName {
  Part weight;
  const char* name;
};

struct FamilyDescription {
  Family family;
  const char* name;  // `model_type` of config.json
  Reads reads;
  bool classifies;                  // whether it has a head for classification
  void (*choose)(ModelSpec& spec);  // its choices, where they are not those of a ModelSpec
  /// Fills in what is still open when sizes are known; null: nothing.
  void (*complete)(ModelSpec& spec);

  FamilyKeys keys;
  /// Keys of its own to the spec, and back; null: none. Errors as spec_from_config().
  Status (*read)(const format::Json& config, ModelSpec& spec);
  void (*write)(const ModelSpec& spec, format::Json& config);

  const char* body;    // leading name of what is not the head's: "transformer."
  const char* blocks;  // behind it, before a block's number: "h."
  std::span<const PartName> embedding_names, block_names;  // behind the body's, and the block's number
  /// Of a weight of the head, whole.
  std::string (*head_name)(const ModelSpec& spec, Part weight);
  bool transposed = true;      // whether matrices are stored [out, in]
  bool fused_by_head = false;  // whether q, k and v of a head stand together, head by head
  std::array<const char*, 3> qkv = {"q", "k", "v"};   // for "{}"
  std::array<const char*, 2> gated = {"gate", "up"};  // likewise
  const char* newer_head_weight = nullptr;            // another name of the head's matrix
};

const FamilyDescription& description_of(Family family);
/// All of them.
std::span<const FamilyDescription* const> descriptions();
/// Their names in a sentence, "gptj, bert and roberta", with `last` before the last one.
std::string families_that(const char* last, bool (*has)(const FamilyDescription& family));

extern const FamilyDescription kGpt2, kGptJ, kGptNeoX, kGptNeo, kBloom, kLlama, kMistral, kQwen2, kQwen3,
    kBert, kRoberta;

}  // namespace loom::model
