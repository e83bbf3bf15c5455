// Units: what a model is gathered, computed and freed in. The embedding, each block, and the head. A unit's
// parameters lie in one flat buffer, so that a gather is one AllGather without copies.
//
// Thread safety: values; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/workers.h"
#include "model/spec.h"

namespace loom::model {

enum class UnitKind { embedding, block, head };

enum class Init { zeros, ones, normal };

/// What a parameter is in its unit: how computations find it, whatever a family calls it. A bias follows its
/// weight.
enum class Part {
  token_embedding,     // [V, C]
  position_embedding,  // [first_position + context, C]
  type_embedding,      // [token_types, C]
  embedding_norm_weight,
  embedding_norm_bias,
  norm1_weight,  // of attention
  norm1_bias,
  qkv_weight,  // [C, qkv_width]: q, k and v side by side, heads next to each other in each
  qkv_bias,
  head_norm_weight,   // [2D]: of each head of queries, and of keys; without a bias
  projection_weight,  // [H·D, C]
  projection_bias,
  norm2_weight,  // of feed-forward
  norm2_bias,
  up_weight,  // [C, F], or gate and up side by side, [C, 2F]
  up_bias,
  down_weight,  // [F, C]
  down_bias,
  final_norm_weight,
  final_norm_bias,
  dense_weight,  // [C, C]: of the masked task's transform, or of the pooler
  dense_bias,
  transform_norm_weight,
  transform_norm_bias,
  head_weight,  // [outputs, C], where it is not the token embedding
  head_bias,
};
constexpr Part bias_of(Part weight) { return static_cast<Part>(static_cast<int>(weight) + 1); }

/// Where a parameter, or some of its columns, stands in a checkpoint. Seen as a matrix of [rows, columns], a
/// vector being one row, element (r, c) of a tensor's part is at [r, c] of the tensor, or at [c, r] if it is
/// transposed.
struct Source {
  std::string name;  // as Hugging Face's checkpoints have it: "transformer.h.0.ln_1.weight"
  std::vector<uint64_t> shape;
  int64_t first_column = 0;  // of the parameter
  int64_t columns = 0;
  bool transposed = false;
  /// Not 0: q, k and v of each head stand together in the tensor, heads of this size one after the other.
  int64_t fused_head_size = 0;
  /// Other names that a checkpoint may have for it: that of a tied tensor's second place, or a newer class's.
  std::vector<std::string> other_names;
};

struct Parameter {
  Part part = Part::token_embedding;
  std::string name;  // of its first source
  std::vector<uint64_t> shape;
  Init init = Init::zeros;
  float deviation = 0;       // of Init::normal
  bool decays = false;       // whether weight decay applies: to matrices, not to vectors
  bool begins_anew = false;  // the checkpoint of another task may lack it
  /// Parts of the columns, of these lengths, which tensor ranks divide each by itself: of queries, keys and
  /// values, or of gate and up. Empty: all columns are one.
  std::vector<int64_t> blocks = {};
  bool undivided = false;       // every tensor rank has it, and makes its whole gradient: a classifier's
  int64_t offset = 0;           // of its first element in the unit's buffer; a multiple of kAlign
  std::vector<Source> sources;  // together all columns
  int64_t elements() const;
  int64_t columns() const { return static_cast<int64_t>(shape.back()); }
};

struct Unit {
  static constexpr int64_t kAlign = 16;  // elements: 64 bytes of fp32

  UnitKind kind = UnitKind::block;
  int index = 0;  // among the units of the model
  std::vector<Parameter> parameters;
  int64_t elements = 0;  // of the buffer, with gaps between parameters
  int borrows = -1;      // unit whose parameters this one uses, too (tied head); -1: none
  std::string name() const;
  /// nullptr where the unit has none.
  const Parameter* find(Part part) const;
  /// Where a parameter lies in a buffer of the unit's layout; nullptr where the unit has none.
  template <typename E>
  E* at(Part part, E* buffer) const {
    const Parameter* parameter = find(part);
    return parameter != nullptr ? buffer + parameter->offset : nullptr;
  }
};

/// The head's matrix, or its gradient: its own, or else the token embedding's.
template <typename E>
E* head_weight(const Unit& head, E* own, E* token_embedding) {
  E* weight = head.at(Part::head_weight, own);
  return weight != nullptr ? weight : token_embedding;
}

/// The embedding, `layers` blocks, the head.
std::vector<Unit> units_of(const ModelSpec& spec);

/// Elements of all parameters, without gaps.
int64_t parameter_count(std::span<const Unit> units);

/// Initial values of elements [begin, begin + into.size()) of a unit's buffer: each is a function of seed and
/// place alone, so every rank makes only its own. Gaps, and what lies past the unit's end, are zeros.
void initialize(Workers& workers, const Unit& unit, uint64_t seed, int64_t begin, std::span<float> into);

}  // namespace loom::model
