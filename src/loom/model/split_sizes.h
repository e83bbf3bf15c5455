// SplitSizes: how large the buffers of a divided unit's pieces are (split_compute.h).
//
// Thread safety: a value; pure functions.
#pragma once

#include <cstdint>

#include "model/pass.h"

namespace loom::model {

/// Bytes of a unit's buffers when its work is divided, for elements of T. Those of `rows` are [M, C], those
/// of `own` the same for this rank's rows.
struct SplitSizes {
  int64_t rows = 0, own = 0;
  int64_t block_saved = 0, head_saved = 0;
  int64_t logits = 0;     // of a pair of the head's pieces
  int64_t numbers = 0;    // of one row and rank
  int64_t workspace = 0;  // enough for any piece, of which an embedding's and a block's need so much:
  int64_t embedding_workspace = 0, block_workspace = 0;
};

template <typename T>
SplitSizes split_sizes(const ModelSpec& spec, const Share& share, int64_t batch, int64_t tokens);

}  // namespace loom::model
