// Split: which elements of a unit's parameters a rank of a tensor-parallel group holds. A layer's first
// matrix is cut by columns and its second by rows, so that what lies between never has to be exchanged;
// attention is cut by heads and the vocabulary by tokens (Shoeybi et al., "Megatron-LM", 2019). Norms,
// positions and the biases of matrices that are cut by rows are held by all ranks.
//
// A rank's unit has the parameters of the whole one, in the same order, each with the shape of its part. All
// ranks' units have the same size and offsets: where a side does not divide evenly, which only the
// vocabulary's need not, the last rank's part is shorter and a gap follows it.
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

/// invalid_argument, naming what does not divide and the degrees that would: heads and the hidden width must
/// be multiples of the degree, and every rank must get tokens of the vocabulary.
Status check_split(const ModelSpec& spec, int degree);

/// Tokens of the vocabulary that a rank has.
ops::VocabularyRange vocabulary_of(const ModelSpec& spec, TensorRank tensor);

/// What a rank computes of each sublayer.
Share share_of(const ModelSpec& spec, TensorRank tensor, bool divides_rows);

/// R: places for so many rows with targets, which are all that a masked model's head computes
/// (model/split_masked.h). Where rows are divided every rank has as many places, so some may stay empty.
int64_t picked_rows(const Share& share, int64_t targets);

/// Whether a parameter is cut; if not, every rank holds all of it.
bool is_cut(const Parameter& parameter);

/// Whether its gradient comes from the rows that a rank has between sublayers; every rank has the parameter
/// whole then.
bool is_of_rows(const Parameter& parameter);

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
