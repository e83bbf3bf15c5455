// Split: the elements of a unit's parameters that a rank of a tensor-parallel group holds. The first of a
// sublayer's two linear layers is cut by columns and the second by rows, so that nothing is exchanged
// between them (recipe_block.cc). Embedding and logits are cut by tokens. All ranks hold norms, positions
// and the biases of second layers.
//
// A rank's unit has the parameters of the whole one, in the same order, each with the shape of its part. All
// ranks' units have the same size and offsets. Vocabulary and hidden layer need not divide evenly. Then the
// last rank's part is shorter, and a gap follows it.
//
// Thread safety: values; pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/pass.h"
#include "model/units.h"

namespace loom::model {

/// Which of `degree` ranks that share the work of one model.
struct TensorRank {
  int degree = 1;
  int rank = 0;
};

/// Heads of queries and of keys must be multiples of the degree. Every rank must get a part of the hidden
/// layer, and tokens of the vocabulary. Errors: invalid_argument, with what does not divide and the degrees
/// that would.
Status check_split(const ModelSpec& spec, int degree);

/// Tokens of the vocabulary that a rank has.
ops::VocabularyRange vocabulary_of(const ModelSpec& spec, TensorRank tensor);

/// What a rank computes of each sublayer.
Share share_of(const ModelSpec& spec, TensorRank tensor, bool divides_rows);

/// Whether a parameter is cut; if not, every rank holds all of it.
bool is_cut(const Parameter& parameter);

/// A unit as a rank holds it.
Unit held_by(TensorRank tensor, const Unit& whole);
std::vector<Unit> units_of(const ModelSpec& spec, TensorRank tensor);

/// Elements that lie next to each other in the whole unit's buffer and in a rank's.
struct Run {
  int64_t whole = 0;  // first element there
  int64_t held = 0;
  int64_t length = 0;
  int rank = 0;
};
/// All that a rank holds, ascending in its own buffer.
std::vector<Run> runs_of(const Unit& whole, TensorRank tensor);
/// All that `degree` ranks hold, ascending in the whole buffer; what all of them hold is the first one's.
std::vector<Run> runs_of_all(const Unit& whole, int degree);

/// Gives elements [begin, begin + into.size()) of some buffer.
using ReadRange = std::function<Status(int64_t begin, std::span<float> into)>;
/// Elements [begin, begin + into.size()) of a rank's buffer, from what gives those of the whole unit's. Gaps
/// become zeros.
Status read_share(const Unit& whole, TensorRank tensor, int64_t begin, std::span<float> into,
                  const ReadRange& read_whole);

/// A whole unit that is stored as `degree` ranks held it.
class StoredShares {
 public:
  /// `read_share` gives elements of a rank's buffer.
  using Read = std::function<Status(int rank, int64_t begin, std::span<float> into)>;
  StoredShares(const Unit& whole, int degree, Read read_share);
  /// Elements [begin, begin + into.size()) of the whole unit's buffer; gaps become zeros.
  Status read(int64_t begin, std::span<float> into) const;

 private:
  std::vector<Run> runs_;
  Read read_;
};

}  // namespace loom::model
