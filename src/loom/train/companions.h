// Companions of a model: what `transformers` keeps beside it, and Loom has no use for.
//
// Thread safety: functions; safe from any thread, for different folders.
#pragma once

#include <string>

#include "base/status.h"
#include "model/spec.h"

namespace loom::train {

/// Copies from the folder of the model that a run began with, for a model that continues texts:
/// generation_config.json; chat_template.jinja, and `chat_template` of tokenizer_config.json, where `folder`
/// has such a file. What is not there is left out; `from` may be empty. Errors: invalid_data, disk_full,
/// system_error.
Status copy_companions(const std::string& from, const model::ModelSpec& spec, const std::string& folder);

}  // namespace loom::train
