// Data of a run, for training and for validation. The task says which: windows of tokens, windows with some
// tokens hidden, texts of which parts are learned, or texts with labels.
//
// Thread safety: values; functions read files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/spec.h"
#include "text/batches.h"
#include "text/tokenizer.h"
#include "train/config.h"

namespace loom::train {

struct Data {
  std::unique_ptr<text::BatchSource> train;
  std::unique_ptr<text::BatchSource> validation;  // nullptr where nothing was held out
  std::shared_ptr<const text::Tokenizer> tokenizer;
  int64_t vocabulary = 0;
  std::vector<std::string> labels;  // names of classes
  text::Token padding = -1;

  /// Tells data apart by their content, in both splits.
  std::string key() const;
};

/// Opens config.data.folder for task_of(config). Errors: not_found, invalid_data, invalid_argument when the
/// folder is not for the task, or not of model.from's tokenizer, saying what would be.
Result<Data> open_data(const Config& config);

/// The model of this config for its data. Errors: as spec_of() of numbers; invalid_argument where the
/// tokenizer has no padding token, and what the family takes for one begins, ends or hides, or is what it
/// counts its positions from.
Result<model::ModelSpec> spec_of(const Config& config, const Data& data);

}  // namespace loom::train
