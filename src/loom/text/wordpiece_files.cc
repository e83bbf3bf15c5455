// The files of a WordPiece: Hugging Face's tokenizer.json, and BERT's own vocab.txt. A setting that changes
// tokens and that Loom does not have is refused, since its tokens would silently be others.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "format/json_file.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"
#include "text/wordpiece.h"

namespace loom::text {
namespace {

using format::Json;
using format::SortedJson;

bool is_null(const SortedJson& object, const char* key) {
  return !object.contains(key) || object[key].is_null();
}

bool has_type(const SortedJson& object, const char* key, const char* type) {
  return object.contains(key) && is_type(object[key], type);
}

Status read_vocabulary(const SortedJson& vocabulary, WordPieceModel& model) {
  if (!vocabulary.is_object()) return fail(Code::invalid_data, "\"vocab\" must be an object of tokens");
  model.vocabulary.resize(vocabulary.size());
  for (const auto& [spelling, number] : vocabulary.items()) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= vocabulary.size())
      return fail(Code::invalid_data, "token \"{}\" must have a number in [0, {})", spelling,
                  vocabulary.size());
    std::string& place = model.vocabulary[number.get<size_t>()];
    if (!place.empty())
      return fail(Code::invalid_data, "tokens \"{}\" and \"{}\" have the same number", place, spelling);
    place = spelling;
  }
  return {};
}

/// A token that was added when the vocabulary was there has the number behind it, as `tokenizers` counts.
Status add_behind_vocabulary(const std::string& content, const SortedJson& token, WordPieceModel& model) {
  const SortedJson number = token.value("id", SortedJson());
  if (number != model.vocabulary.size())
    return fail(
        Code::unsupported,
        "the added token \"{}\" is not in the vocabulary and has the number {}, must be in it or have "
        "the next one, {}",
        content, number.dump(), model.vocabulary.size());
  model.vocabulary.push_back(content);
  return {};
}

Status read_added(const SortedJson& tokens, WordPieceModel& model) {
  const std::set<std::string> words(model.vocabulary.begin(), model.vocabulary.end());
  model.added.clear();
  for (const SortedJson& token : tokens) {
    const std::string content = token.is_object() ? token.value("content", "") : "";
    if (content != model.unknown && !WordPieceModel().adds(content))
      return fail(Code::unsupported,
                  "the added token \"{}\" is none of BERT's own, which are all there may be", content);
    for (const char* setting : {"single_word", "normalized"})
      if (token.value(setting, false))
        return fail(Code::unsupported, "\"{}\" of the added token \"{}\" is true; only false is supported",
                    setting, content);
    if (model.adds(content)) continue;
    // Behind the vocabulary an unknown token is none: `tokenizers` looks for it among the words.
    if (!words.contains(content) && content != model.unknown)
      LOOM_TRY(add_behind_vocabulary(content, token, model));
    model.added.push_back(content);
  }
  return {};
}

Result<WordPieceModel> model_of(const SortedJson& json) {
  if (!json.is_object() || !has_type(json, "model", "WordPiece"))
    return fail(Code::unsupported, "the model must be WordPiece");
  if (!has_type(json, "normalizer", "BertNormalizer") || !has_type(json, "pre_tokenizer", "BertPreTokenizer"))
    return fail(Code::unsupported,
                "a WordPiece must have a BertNormalizer and a BertPreTokenizer; others are not supported");
  if (!is_null(json, "truncation") || !is_null(json, "padding"))
    return fail(Code::unsupported, "\"truncation\" and \"padding\" must be null: batches see to both");
  WordPieceModel model;
  const SortedJson &normalizer = json["normalizer"], &pieces = json["model"];
  model.lower_case = normalizer.value("lowercase", true);
  model.strip_accents =
      is_null(normalizer, "strip_accents") ? model.lower_case : normalizer.value("strip_accents", true);
  model.clean_text = normalizer.value("clean_text", true);
  model.chinese_characters = normalizer.value("handle_chinese_chars", true);
  model.unknown = pieces.value("unk_token", "[UNK]");
  model.prefix = pieces.value("continuing_subword_prefix", "##");
  model.longest_word = pieces.value("max_input_chars_per_word", int64_t{100});
  LOOM_TRY(read_vocabulary(pieces.value("vocab", SortedJson()), model));
  LOOM_TRY(read_added(json.value("added_tokens", SortedJson::array()), model));
  return model;
}

Json tokenizer_json(const WordPieceModel& model) {
  Json::object_t entries;
  for (size_t id = 0; id < model.vocabulary.size(); ++id) entries.push_back({model.vocabulary[id], id});
  const Json vocabulary(std::move(entries));
  Json added = Json::array();
  for (size_t id = 0; id < model.vocabulary.size(); ++id)
    for (const std::string& name : model.added)
      if (model.vocabulary[id] == name)
        added.push_back({{"id", id},
                         {"content", name},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = added;
  json["normalizer"] = {{"type", "BertNormalizer"},
                        {"clean_text", model.clean_text},
                        {"handle_chinese_chars", model.chinese_characters},
                        {"strip_accents", model.strip_accents},
                        {"lowercase", model.lower_case}};
  json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  json["post_processor"] = nullptr;
  json["decoder"] = {{"type", "WordPiece"}, {"prefix", model.prefix}, {"cleanup", true}};
  json["model"] = {{"type", "WordPiece"},
                   {"unk_token", model.unknown},
                   {"continuing_subword_prefix", model.prefix},
                   {"max_input_chars_per_word", model.longest_word},
                   {"vocab", vocabulary}};
  return json;
}

}  // namespace

Result<std::shared_ptr<const WordPieceTokenizer>> WordPieceTokenizer::from_tokenizer_json(
    const std::string& path) {
  const Result<SortedJson> json = format::read_sorted_json(path);
  LOOM_TRY(json.status());
  Result<WordPieceModel> model = [&]() -> Result<WordPieceModel> {
    try {
      return model_of(*json);
    } catch (const SortedJson::type_error& error) {  // value() of a key with another type
      return fail(Code::invalid_data, "a setting has the wrong type: {}", error.what());
    }
  }();
  LOOM_TRY(model.status().in(path));
  Result<std::shared_ptr<const WordPieceTokenizer>> tokenizer = make(model.take());
  LOOM_TRY(tokenizer.status().in(path));
  return tokenizer;
}

Result<std::shared_ptr<const WordPieceTokenizer>> WordPieceTokenizer::from_vocabulary(
    const std::string& vocab_txt) {
  const Result<std::string> lines = read_file(vocab_txt);
  LOOM_TRY(lines.status());
  WordPieceModel model;
  for (size_t at = 0; at < lines->size();) {
    const size_t end = std::min(lines->find('\n', at), lines->size());
    std::string line = lines->substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!is_utf8(line))
      return fail(Code::invalid_data, "{}: line {} is not UTF-8, must be a token in UTF-8", vocab_txt,
                  model.vocabulary.size() + 1);
    model.vocabulary.push_back(std::move(line));
    at = end + 1;
  }
  const std::string beside = std::filesystem::path(vocab_txt).parent_path() / "tokenizer_config.json";
  if (is_file(beside)) {
    const Result<Json> json = format::read_json(beside);
    LOOM_TRY(json.status());
    const Result<bool> lower_case = format::value_or<bool>(*json, "do_lower_case", true);
    LOOM_TRY(lower_case.status().in(beside));
    const Result<bool> accents = format::value_or<bool>(*json, "strip_accents", *lower_case);
    LOOM_TRY(accents.status().in(beside));
    const Result<bool> chinese = format::value_or<bool>(*json, "tokenize_chinese_chars", true);
    LOOM_TRY(chinese.status().in(beside));
    const Result<bool> basic = format::value_or<bool>(*json, "do_basic_tokenize", true);
    LOOM_TRY(basic.status().in(beside));
    if (!*basic)
      return fail(Code::unsupported, "{}: do_basic_tokenize is false; only true is supported", beside);
    // Stands there as a text, or as an added token with its settings.
    const bool object = json->contains("unk_token") && (*json)["unk_token"].is_object();
    const Result<std::string> unknown =
        object ? format::required<std::string>((*json)["unk_token"], "content")
               : format::value_or<std::string>(*json, "unk_token", model.unknown);
    LOOM_TRY(unknown.status().in(beside));
    model.lower_case = *lower_case;
    model.strip_accents = *accents;
    model.chinese_characters = *chinese;
    model.unknown = *unknown;
  }
  if (!model.adds(model.unknown)) model.added.push_back(model.unknown);
  Result<std::shared_ptr<const WordPieceTokenizer>> tokenizer = make(std::move(model));
  LOOM_TRY(tokenizer.status().in(vocab_txt));
  return tokenizer;
}

Status WordPieceTokenizer::save(const std::string& folder) const {
  std::string lines;
  for (const std::string& token : model_.vocabulary) lines += token + '\n';
  LOOM_TRY(write_file(join_path(folder, "vocab.txt"), lines));
  LOOM_TRY(format::write_json(join_path(folder, "tokenizer_config.json"),
                              {{"tokenizer_class", "BertTokenizer"},
                               {"do_lower_case", model_.lower_case},
                               {"strip_accents", model_.strip_accents},
                               {"tokenize_chinese_chars", model_.chinese_characters},
                               {"unk_token", model_.unknown}}));
  return format::write_json(join_path(folder, "tokenizer.json"), tokenizer_json(model_));
}

}  // namespace loom::text
