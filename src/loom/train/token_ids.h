// Token ids: which tokens of a model's config.json begin and end a text. What generates with `transformers`
// stops at the latter; null, it never stops. And how many tokens a model reads, which `transformers` cuts
// texts to if it is asked to.
//
// Thread safety: pure functions; set_longest_text() writes a file.
#pragma once

#include "format/json_file.h"
#include "model/spec.h"
#include "text/tokenizer.h"

namespace loom::train {

/// bos_token_id and eos_token_id of `config` are those of `origin`, the config that the model came with (null
/// for none), where that has them, else the tokenizer's. What neither has stays as it is.
void set_token_ids(const format::Json& origin, const text::Tokenizer& tokenizer, format::Json& config);

/// Those of `config` that are not null go to `origin`.
void take_token_ids(const format::Json& config, format::Json& origin);

/// model_max_length of a saved model's tokenizer_config.json is the model's context. The file stays as it is
/// for a model with ALiBi, whose texts nothing bounds, and may be missing.
Status set_longest_text(const model::ModelSpec& spec, const std::string& folder);

}  // namespace loom::train
