// Companions of a model: its tokenizer, and what `transformers` keeps beside it that Loom has no use for.
//
// Thread safety: functions; safe from any thread, for different folders.
#pragma once

#include <string>

#include "base/status.h"
#include "model/spec.h"
#include "text/tokenizer.h"

namespace loom::train {

/// Puts a run's tokenizer into the folder of its model. If the model in `from`, which may be empty, has the
/// same one, its files are copied as they are. Otherwise `tokenizer` is saved, with the model's context as
/// the longest text. Errors: as text::replace_tokenizer().
Status put_tokenizer(const text::Tokenizer& tokenizer, const std::string& from, const model::ModelSpec& spec,
                     const std::string& folder);

/// Copies generation_config.json and chat_template.jinja from the folder of the model that a run began with,
/// for a model that continues texts. What is not there is left out; `from` may be empty. Errors: disk_full,
/// system_error.
Status copy_companions(const std::string& from, const model::ModelSpec& spec, const std::string& folder);

}  // namespace loom::train
