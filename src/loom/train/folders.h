// Says what a path is that a user gave for a model, a checkpoint or a dataset. Users easily give a run's
// folder instead of a folder in it, and the error can then name the right one.
//
// Thread safety: functions; safe from any thread.
#pragma once

#include <string>

#include "base/status.h"

namespace loom::train {

enum class Wanted {
  model,       // a folder in Hugging Face's form
  checkpoint,  // a folder of one step
  dataset,     // a folder that `loom tokenize` made
  stored,      // one of these, or a safetensors file
};

/// Fails when `path` does not exist, is a file where a folder is wanted, or is something else that Loom
/// knows. The sentence says what it is, and what would be right. An unknown `path` passes; the code that
/// reads it says what is missing. Errors: not_found.
Status expect(const std::string& path, Wanted wanted);

enum class Made { run, model, dataset };

/// Fails when files of what is made in `path` would replace those of something else, such as the config.json
/// of a model or a user's own. Errors: invalid_argument.
Status expect_place_for(Made made, const std::string& path);

}  // namespace loom::train
