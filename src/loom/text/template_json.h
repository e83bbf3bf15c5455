// The post-processor of a tokenizer.json: which special tokens stand around a text that a model reads whole.
//
// Thread safety: pure functions.
#pragma once

#include "format/json_file.h"
#include "text/tokenizer.h"

namespace loom::text {

/// The template of a "post_processor", which may be null: then nothing. Offsets, and what a pair of texts
/// gets, play no part. Errors: unsupported for one of another kind; invalid_data.
Result<std::optional<SequenceTemplate>> template_of(const format::SortedJson& json);

/// A "post_processor" that puts these tokens around a text, `names` being the text of each token by its
/// number. With one token on each side, pairs are BERT's, or, for `byte_level`, RoBERTa's.
format::Json post_processor_json(const SequenceTemplate& around, const std::vector<std::string>& names,
                                 bool byte_level);

}  // namespace loom::text
