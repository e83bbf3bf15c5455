#include "text/same_tokenizer.h"

#include "text/examples.h"

namespace loom::text {

std::string tokenizer_key(const Tokenizer& tokenizer) { return fmt::format("{:016x}", tokenizer.hash()); }

bool are_alike(const Tokenizer& one, const Tokenizer& other) {
  return one.hash() == other.hash() && one.sequence_template() == other.sequence_template() &&
         one.end_of_text() == other.end_of_text() && one.specials() == other.specials();
}

Status check_tokenizer_of_model(const std::string& folder, const std::string& dataset,
                                const Tokenizer& tokenizer) {
  const auto own = open_tokenizer(folder);
  if (own.status().code() == Code::not_found) return {};
  LOOM_TRY(own.status());
  const bool whole = holds_examples(dataset);  // others have nothing around them
  if ((*own)->hash() == tokenizer.hash() && whole &&
      (*own)->sequence_template() != tokenizer.sequence_template())
    return fail(Code::invalid_argument,
                "the texts of {} have other special tokens around them than the tokenizer of the model {} "
                "gives them; "
                "`loom tokenize --labels --tokenizer {}` makes tokens for it",
                dataset, folder, folder);
  if ((*own)->hash() == tokenizer.hash()) return {};
  return fail(
      Code::invalid_argument,
      "the tokens of {} are of another tokenizer ({}) than the one of the model {} ({}); `loom tokenize "
      "--tokenizer {}` makes tokens for it",
      dataset, tokenizer.description(), folder, (*own)->description(), folder);
}

/// With a tokenizer beside the model, the dataset is of the same one: tokens were added to it alone.
Status check_vocabulary_of_model(const std::string& folder, int64_t vocabulary, int64_t of_dataset) {
  if (of_dataset <= vocabulary) return {};
  return fail(
      Code::invalid_argument,
      "the model {} has {} tokens, but the dataset's vocabulary has {}: the model must have a row for "
      "each token of its tokenizer, which `model.resize_token_embeddings(len(tokenizer))` of "
      "transformers gives it if tokens were added to that; a dataset of another tokenizer is no use "
      "to it",
      folder, vocabulary, of_dataset);
}

Status check_tokens_of(const std::string& dataset, uint64_t tokens_hash, const Tokenizer& tokenizer) {
  if (tokens_hash == tokenizer.hash()) return {};
  return fail(Code::invalid_data,
              "the tokens of {} were not made by the tokenizer beside them ({}): one of both was replaced; "
              "`loom tokenize` makes them anew",
              dataset, tokenizer.description());
}

}  // namespace loom::text
