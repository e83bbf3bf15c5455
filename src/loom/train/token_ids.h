// Token ids: which tokens begin, end and pad a text, as a model's config.json says. Generation by
// `transformers` stops at the token that ends a text. If that is null, generation never stops.
//
// Thread safety: pure functions.
#pragma once

#include "format/json_file.h"
#include "text/tokenizer.h"

namespace loom::train {

/// `origin` is the config that the model came with; null for none. bos_token_id and eos_token_id of `config`
/// become those of `origin`, or else the tokenizer's. pad_token_id becomes that of `origin` where `config`
/// has none: a model that reads filled up sequences has its own. What nobody has stays as it is.
void set_token_ids(const format::Json& origin, const text::Tokenizer& tokenizer, format::Json& config);

/// Those of `config` that are not null go to `origin`.
void take_token_ids(const format::Json& config, format::Json& origin);

}  // namespace loom::train
