// BatchLayout: where a microbatch's derived arrays lie, and what is in them (batch_arrays.h).
//
// The caller that runs steps keeps bytes() for each microbatch beside its tokens and targets. Once the host
// knows these, and before the first step that reads them, the caller calls fill() and passes the result on in
// Pass::arrays.
// On a GPU fill() writes to the host's copy, which is uploaded together with tokens and targets. A CPU has
// one copy.
//
// Thread safety: a value.
#pragma once

#include <cstddef>

#include "model/recipe.h"

namespace loom::model {

class BatchLayout {
 public:
  /// `sizes` are a rank's. With `fixed` no shape or null pointer depends on what the tokens are: all R places
  /// count, and positions are there whenever the model counts them. A GPU's operators are prepared for
  /// shapes.
  BatchLayout(const ModelSpec& spec, const RecipeSizes& sizes, bool fixed = false);

  /// Of one microbatch: a multiple of 64.
  int64_t bytes() const { return bytes_; }

  /// Writes to host[bytes()] what follows from token[batch, tokens] and target[batch, tokens]. The result has
  /// the addresses of that in `device`, which may be `host`. With `only_row` of the batch, not negative, it
  /// is for the logits of that row, and `target` is not read: each sequence is one text. `target` may be null
  /// where the head has no turn and sequences hold one text each.
  BatchArrays fill(const int32_t* token, const int32_t* target, int64_t only_row, std::byte* host,
                   const std::byte* device) const;

 private:
  void fill_rows(const int32_t* target, int64_t only_row, const int32_t* lengths, std::byte* host,
                 BatchArrays& arrays) const;
  /// begins, ends and positions.
  void fill_texts(const int32_t* target, std::byte* host) const;

  ModelSpec spec_;
  RecipeSizes sizes_;
  bool fixed_;
  int64_t places_ = 0, places_of_one_ = 0;  // R of a loss and of one row's logits
  // Offsets; lengths are first.
  int64_t begins_ = -1, ends_ = -1, positions_ = -1, rows_ = -1, targets_ = -1, back_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace loom::model
