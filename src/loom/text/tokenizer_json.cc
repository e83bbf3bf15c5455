#include "text/tokenizer_json.h"

#include <algorithm>

#include "base/file.h"

namespace loom::text {

using format::Json;
using format::SortedJson;

std::string quote(const SortedJson& json) {
  const std::string text = json.dump(-1, ' ', true, SortedJson::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "…" : text;
}

const SortedJson& part_of(const SortedJson& json, const char* key) {
  static const SortedJson none;
  if (!json.is_object()) return none;
  const auto found = json.find(key);
  return found == json.end() ? none : *found;
}

std::function<std::optional<int64_t>(const std::string&)> numbers_in(const SortedJson& vocabulary) {
  return [&vocabulary](const std::string& spelling) -> std::optional<int64_t> {
    if (!vocabulary.is_object()) return std::nullopt;
    const auto found = vocabulary.find(spelling);
    if (found == vocabulary.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<int64_t>();
  };
}

int64_t next_number(const SortedJson& vocabulary) {
  int64_t next = 0;
  for (const SortedJson& number : vocabulary)
    if (number.is_number_integer())
      next = std::max(next, std::min<int64_t>(number.get<int64_t>(), INT32_MAX - 1) + 1);
  return next;
}

Status write_tokenizer_config(const std::string& folder, const Json& settings) {
  // The class's own list names types of tokens, too, in versions of `transformers` before 5.
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_input_names", {"input_ids", "attention_mask"}}};
  json.update(settings);
  return format::write_json(join_path(folder, "tokenizer_config.json"), json);
}

}  // namespace loom::text
