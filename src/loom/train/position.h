// Position: how far a run has come in its data, as its checkpoints keep it. The sequences of a dataset are
// one endless list (text/batch_source.h), which the length of sequences, packing and the seed determine.
//
// Thread safety: values; pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "text/batch_source.h"
#include "train/config.h"

namespace loom::train {

struct Position {
  int64_t sequences = 0;        // of the list, that were trained on
  int64_t global_batch = 0;     // of them, in a step
  int64_t sequence_length = 0;  // these three determine the list
  int64_t seed = 0;
  std::string dataset;  // dataset_key(), also of packing; "" in checkpoints that did not keep it

  format::Json to_json() const;
};

/// What a checkpoint of `step` keeps; a manifest without a position has its config's. Errors: invalid_data.
Result<Position> position_of(const format::Json& manifest, int64_t step);

struct Continuation {
  int64_t sequence = 0;  // that the next step begins with
  std::string note;      // how that differs from what the run before would have done; "": it does not
};

/// What stands in manifests for what a run trains on, in hexadecimal.
std::string dataset_key(const text::BatchSource& source);

/// Where a run of this config and dataset goes on after a checkpoint at `stored`. With another
/// data.global_batch it is the next sequence all the same. Another dataset, data.sequence_length,
/// data.packing or run.seed is another list. The checkpoint's own run is refused then (invalid_argument). A
/// run that only begins with the checkpoint, as run.resume_from says, begins with the list's first sequence.
Result<Continuation> continuation(const Position& stored, const Config& config, const std::string& dataset,
                                  bool own_run);

/// A sentence on how the learning rate of `step`, the next one, differs from that of the checkpoint's config,
/// and by which keys; "": it does not.
std::string rate_change(const Config& before, const Config& config, int64_t step);

}  // namespace loom::train
