// Companions of a model: its tokenizer, and what `transformers` keeps beside it that Loom has no use for.
//
// Thread safety: functions; safe from any thread, for different folders.
#pragma once

#include <initializer_list>
#include <string>

#include "base/status.h"
#include "model/spec.h"
#include "text/tokenizer.h"

namespace loom::train {

/// Puts a run's tokenizer into the folder of its model. The first of `models` with tokenizer.json and a
/// tokenizer like this one gives its files, as they are, and is returned. Where none is, `tokenizer` is
/// saved, with the model's context as the longest text and the chat template of the first of them, and "" is
/// returned. Models that are not there, or "", are passed over. Errors: as text::replace_tokenizer();
/// invalid_data.
Result<std::string> put_tokenizer(const text::Tokenizer& tokenizer, std::initializer_list<std::string> models,
                                  const model::ModelSpec& spec, const std::string& folder);

/// Copies generation_config.json and chat_template.jinja from the folder of the model that a run began with,
/// for a model that continues texts. What is not there is left out; `from` may be empty. Errors: disk_full,
/// system_error.
Status copy_companions(const std::string& from, const model::ModelSpec& spec, const std::string& folder);

}  // namespace loom::train
