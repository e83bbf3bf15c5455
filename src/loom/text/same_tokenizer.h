// Whether tokens are what a model was trained on: a number means another piece of text to every tokenizer.
//
// Thread safety: functions; they read files.
#pragma once

#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace loom::text {

/// What stands in manifests for a tokenizer: its hash, in hexadecimal.
std::string tokenizer_key(const Tokenizer& tokenizer);

/// Whether two give texts the same tokens, put the same around them, and end them by the same.
bool are_alike(const Tokenizer& one, const Tokenizer& other);

/// That a dataset's tokens are of the tokenizer beside the model in `folder`; success where there is none,
/// since then nobody knows. Errors: invalid_argument, saying whose tokens they are and what would make right
/// ones; invalid_data, unsupported (of the tokenizer's files).
Status check_tokenizer_of_model(const std::string& folder, const std::string& dataset,
                                const Tokenizer& tokenizer);

/// That the model in `folder`, of `vocabulary` tokens, knows all of a dataset's, where the check above found
/// nothing. Errors: invalid_argument.
Status check_vocabulary_of_model(const std::string& folder, int64_t vocabulary, int64_t of_dataset);

/// That the tokens in a dataset's files are of the tokenizer that lies beside them. Errors: invalid_data.
Status check_tokens_of(const std::string& dataset, uint64_t tokens_hash, const Tokenizer& tokenizer);

}  // namespace loom::text
