// Pass and Share: what a unit's steps work on, besides their arrays.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/context.h"
#include "model/batch_arrays.h"
#include "model/spec.h"

namespace loom::model {

/// One microbatch's way through the units.
struct Pass {
  device::Context context;  // of the device that the runner's table is for
  const ModelSpec* spec = nullptr;
  int64_t batch = 0;          // sequences
  int64_t tokens = 0;         // of a sequence
  uint64_t seed = 0;          // of dropout
  uint32_t step = 0;          // of training
  uint64_t first_sample = 0;  // number of the first sequence in the global batch
  bool training = false;      // whether anything is dropped
  /// Of the microbatch. They may be left out where a unit's steps read neither tokens nor lengths.
  BatchArrays arrays = {};
  int64_t first_token = 0;  // place of the first token in its sequence, where tokens come one by one
  /// Where they do: keys and values of the block's tokens so far, [past_tokens, key_width] each; batch and
  /// tokens are 1.
  std::byte* past = nullptr;
  int64_t past_tokens = 0;  // that there is room for
  int64_t rows() const { return batch * tokens; }
};

/// The part of a block's attention and feed-forward that is computed here: all of it, unless tensor
/// parallelism splits heads and the hidden layer over ranks. Parameters and arrays have these sizes.
struct Share {
  AttentionGeometry attention = {};
  int64_t first_head = 0;    // of queries, among the model's
  int64_t feed_forward = 0;  // width of the hidden layer here
  /// Tokens whose rows of the embedding, and columns of the logits, are here.
  ops::VocabularyRange vocabulary = {};
  int degree = 1;  // ranks that the work is divided over
  int rank = 0;    // of them
  /// Between sublayers each rank has an equal part of the rows only: model/sequence_parallel.h.
  bool divides_rows = false;
  static Share whole(const ModelSpec& spec) {
    return {spec.attention(), 0, spec.feed_forward, {0, spec.vocabulary}};
  }
};

/// Where in a unit something is dropped.
enum class Site : uint32_t { attention = 0, projection = 1, feed_forward = 2 };

/// Tells the draws of a site of unit `unit` apart from all others of the run.
inline ops::RandomKey key_of(const Pass& pass, int unit, Site site) {
  return {pass.seed, pass.step, static_cast<uint32_t>(unit) * 4 + static_cast<uint32_t>(site)};
}

}  // namespace loom::model
