// What the readers of Hugging Face's tokenizer.json have in common, and the writers.
//
// Thread safety: pure functions but for the files.
#pragma once

#include <functional>
#include <optional>

#include "format/json_file.h"
#include "text/bpe.h"

namespace loom::text {

inline constexpr char kEndOfTextSpelling[] = "<|endoftext|>";

/// A part of a JSON file as text for a sentence.
std::string quote(const format::SortedJson& json);

/// The part of an object that has this key; null where there is none, or no object.
const format::SortedJson& part_of(const format::SortedJson& json, const char* key);

/// Whether a part of the file is an object of this "type". A "type" that is no text is none.
inline bool is_type(const format::SortedJson& json, const char* type) {
  if (!json.is_object()) return false;
  const auto found = json.find("type");
  return found != json.end() && *found == type;
}

/// The numbers that tokens have in a vocabulary, {spelling: number}; nothing for what it lacks.
std::function<std::optional<int64_t>(const std::string&)> numbers_in(const format::SortedJson& vocabulary);
/// The first number behind a vocabulary.
int64_t next_number(const format::SortedJson& vocabulary);

/// tokenizer.json of a byte-level BPE: `vocabulary` is {spelling: number} and `merges` a list of "left
/// right"; of `model` what stands around them counts.
format::Json byte_level_json(const BpeModel& model, const format::Json& vocabulary,
                             const format::Json& merges);

/// Writes tokenizer_config.json, with `settings` added. It makes `transformers` use tokenizer.json as it is.
/// Without it, `transformers` makes a tokenizer of the model's family from vocabulary and merges alone, and
/// loses the file's normalization and leading space. No types of tokens are made, for which GPT-2 would add
/// an embedding.
Status write_tokenizer_config(const std::string& folder, const format::Json& settings);

}  // namespace loom::text
