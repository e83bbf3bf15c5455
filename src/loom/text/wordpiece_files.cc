// The files of a WordPiece: Hugging Face's tokenizer.json, and BERT's own vocab.txt. A setting that changes
// tokens and that Loom does not have is refused, since its tokens would silently be others.
#include <algorithm>
#include <array>
#include <map>

#include "base/file.h"
#include "format/json_file.h"
#include "text/files_beside.h"
#include "text/template_json.h"
#include "text/text_file.h"
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

std::map<std::string, size_t> numbers_of(const WordPieceModel& model) {
  std::map<std::string, size_t> numbers;
  for (size_t id = 0; id < model.vocabulary.size(); ++id) numbers.emplace(model.vocabulary[id], id);
  return numbers;
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

/// The added tokens of a tokenizer.json. One that is not in the vocabulary has the number behind it, as
/// `tokenizers` counts. Behind it an unknown token is none: `tokenizers` looks for it among the words.
Result<std::vector<AddedToken>> added_tokens_of(const SortedJson& tokens, const WordPieceModel& model) {
  const std::map<std::string, size_t> numbers = numbers_of(model);
  std::vector<AddedToken> added;
  size_t next = model.vocabulary.size();
  for (const SortedJson& json : tokens) {
    AddedToken token;
    token.content = json.is_object() ? json.value("content", "") : "";
    if (json.value("single_word", false))
      return fail(Code::unsupported,
                  "\"single_word\" of the added token \"{}\" is true; only false is supported",
                  token.content);
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    if (std::any_of(added.begin(), added.end(), same)) continue;
    token.special = json.value("special", true);
    token.left_strip = json.value("lstrip", false);
    token.right_strip = json.value("rstrip", false);
    token.normalized = json.value("normalized", false);
    const auto known = numbers.find(token.content);
    if (known == numbers.end() && token.content != model.unknown) {
      const SortedJson number = json.value("id", SortedJson());
      if (number != next)
        return fail(
            Code::unsupported,
            "the added token \"{}\" is not in the vocabulary and has the number {}, must be in it or have "
            "the next one, {}",
            token.content, number.dump(), next);
      ++next;
    }
    token.id = static_cast<Token>(known == numbers.end() ? next - 1 : known->second);
    added.push_back(std::move(token));
  }
  return added;
}

/// The tokens that lie beside the vocabulary come to `added`, and those that it lacks behind it.
Status add_added(std::vector<AddedToken> added, const FilesBeside& beside, WordPieceModel& model) {
  const std::map<std::string, size_t> numbers = numbers_of(model);
  const auto number_of = [&](const std::string& content) -> std::optional<int64_t> {
    const auto known = numbers.find(content);
    return known == numbers.end() ? std::nullopt : std::optional(static_cast<int64_t>(known->second));
  };
  LOOM_TRY(beside.add_to(added, number_of, static_cast<int64_t>(model.vocabulary.size())));
  for (const AddedToken& token : added) {
    if (numbers.contains(token.content) || token.content == model.unknown) continue;
    model.vocabulary.push_back(token.content);
    ++model.behind;
  }
  model.added = std::move(added);
  model.names = beside.names();
  // BERT's class puts nothing but its own token in front, whatever else the files call the beginning.
  if (beside.role("cls_token").value_or("").empty()) model.names.begin.clear();
  const Result<std::optional<bool>> split = beside.flag("split_special_tokens");
  LOOM_TRY(split.status());
  if (split->value_or(false))
    return fail(Code::unsupported, "\"split_special_tokens\" of {} is true; only false is supported",
                beside.config_path());
  return beside.check_empty("never_split");
}

Result<WordPieceModel> model_of(const SortedJson& json, const FilesBeside& beside) {
  if (!json.is_object() || !has_type(json, "model", "WordPiece"))
    return fail(Code::unsupported, "the model must be WordPiece");
  if (!has_type(json, "normalizer", "BertNormalizer") || !has_type(json, "pre_tokenizer", "BertPreTokenizer"))
    return fail(Code::unsupported,
                "a WordPiece must have a BertNormalizer and a BertPreTokenizer; others are not supported");
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
  LOOM_TRY(beside.check_same("do_lower_case", model.lower_case));
  LOOM_TRY(beside.check_same("strip_accents", model.strip_accents));
  LOOM_TRY(beside.check_same("tokenize_chinese_chars", model.chinese_characters));
  Result<std::optional<SequenceTemplate>> around = template_of(json.value("post_processor", SortedJson()));
  LOOM_TRY(around.status());
  model.around = around.take();
  Result<std::vector<AddedToken>> added =
      added_tokens_of(json.value("added_tokens", SortedJson::array()), model);
  LOOM_TRY(added.status());
  LOOM_TRY(add_added(added.take(), beside, model));
  return model;
}

Json settings_of(const AddedToken& token) {
  return {{"single_word", false},
          {"lstrip", token.left_strip},
          {"rstrip", token.right_strip},
          {"normalized", token.normalized},
          {"special", token.special}};
}

Json tokenizer_json(const WordPieceModel& model) {
  Json::object_t entries;
  for (size_t id = 0; id + model.behind < model.vocabulary.size(); ++id)
    entries.push_back({model.vocabulary[id], id});
  const Json vocabulary(std::move(entries));
  Json added = Json::array();
  for (size_t id = 0; id < model.vocabulary.size(); ++id)
    for (const AddedToken& token : model.added)
      if (model.vocabulary[id] == token.content) {
        added.push_back({{"id", id}, {"content", token.content}});
        added.back().update(settings_of(token));
      }
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
  json["post_processor"] = post_processor_json(*model.around, model.vocabulary, false);
  json["decoder"] = {{"type", "WordPiece"}, {"prefix", model.prefix}, {"cleanup", true}};
  json["model"] = {{"type", "WordPiece"},
                   {"unk_token", model.unknown},
                   {"continuing_subword_prefix", model.prefix},
                   {"max_input_chars_per_word", model.longest_word},
                   {"vocab", vocabulary}};
  return json;
}

/// What tokenizer_config.json says where there is a vocabulary alone.
Status read_settings(const FilesBeside& beside, WordPieceModel& model) {
  const auto read = [&](const char* key, bool otherwise, bool& into) -> Status {
    const Result<std::optional<bool>> value = beside.flag(key);
    LOOM_TRY(value.status());
    into = value->value_or(otherwise);
    return {};
  };
  bool basic = true;
  LOOM_TRY(read("do_lower_case", true, model.lower_case));
  LOOM_TRY(read("strip_accents", model.lower_case, model.strip_accents));
  LOOM_TRY(read("tokenize_chinese_chars", true, model.chinese_characters));
  LOOM_TRY(read("do_basic_tokenize", true, basic));
  if (!basic)
    return fail(Code::unsupported, "{}: do_basic_tokenize is false; only true is supported",
                beside.config_path());
  constexpr std::array kClasses = {"",
                                   "BertTokenizer",
                                   "DistilBertTokenizer",
                                   "ElectraTokenizer",
                                   "MobileBertTokenizer",
                                   "PreTrainedTokenizer",
                                   "TokenizersBackend"};
  if (std::find(kClasses.begin(), kClasses.end(), beside.tokenizer_class()) == kClasses.end())
    return fail(Code::unsupported,
                "the tokenizer is a {}, of which vocab.txt alone does not say how it cuts texts: must be a "
                "BertTokenizer, or have a tokenizer.json",
                beside.tokenizer_class());
  if (const std::optional<std::string> unknown = beside.role("unk_token"); unknown && !unknown->empty())
    model.unknown = *unknown;
  return {};
}

Result<WordPieceModel> model_of_lines(std::string_view lines) {
  WordPieceModel model;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    std::string_view line = lines.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!is_utf8(line))
      return fail(Code::invalid_data, "line {} is not UTF-8, must be a token in UTF-8",
                  model.vocabulary.size() + 1);
    model.vocabulary.emplace_back(line);
    at = end + 1;
  }
  return model;
}

Result<WordPieceModel> model_of_vocabulary(const std::string& vocab_txt) {
  const Result<std::string> lines = read_file(vocab_txt);
  LOOM_TRY(lines.status());
  Result<WordPieceModel> model = model_of_lines(without_mark(*lines));
  LOOM_TRY(model.status().in(vocab_txt));
  const Result<FilesBeside> beside = FilesBeside::read(folder_of(vocab_txt));
  LOOM_TRY(beside.status());
  LOOM_TRY(read_settings(*beside, *model));
  if (!model->adds(model->unknown)) model->added.push_back({model->unknown});
  const std::map<std::string, size_t> numbers = numbers_of(*model);
  std::vector<AddedToken> added;
  for (AddedToken token : model->added)
    if (const auto known = numbers.find(token.content); known != numbers.end()) {
      token.id = static_cast<Token>(known->second);
      added.push_back(token);
    }
  LOOM_TRY(add_added(std::move(added), *beside, *model));
  return model;
}

}  // namespace

Result<std::shared_ptr<const WordPieceTokenizer>> WordPieceTokenizer::from_tokenizer_json(
    const std::string& path) {
  const Result<SortedJson> json = format::read_sorted_json(path);
  LOOM_TRY(json.status());
  const Result<FilesBeside> beside = FilesBeside::read(folder_of(path));
  LOOM_TRY(beside.status());
  Result<WordPieceModel> model = [&]() -> Result<WordPieceModel> {
    try {
      return model_of(*json, *beside);
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
  Result<WordPieceModel> model = model_of_vocabulary(vocab_txt);
  LOOM_TRY(model.status());
  Result<std::shared_ptr<const WordPieceTokenizer>> tokenizer = make(model.take());
  LOOM_TRY(tokenizer.status().in(vocab_txt));
  return tokenizer;
}

Status WordPieceTokenizer::save(const std::string& folder) const {
  std::string lines;
  for (Token id = 0; id < pieces_; ++id) lines += model_.vocabulary[static_cast<size_t>(id)] + '\n';
  LOOM_TRY(write_file(join_path(folder, "vocab.txt"), lines));
  Json config = {{"tokenizer_class", "BertTokenizer"},
                 {"do_lower_case", model_.lower_case},
                 {"strip_accents", model_.strip_accents},
                 {"tokenize_chinese_chars", model_.chinese_characters},
                 {"unk_token", model_.unknown}};
  for (const auto& [role, given] : {std::pair("cls_token", &model_.names.begin),
                                    {"sep_token", &model_.names.end},
                                    {"mask_token", &model_.names.mask},
                                    {"pad_token", &model_.names.padding}})
    if (!given->empty()) config[role] = *given;
  for (const AddedToken& token : model_.added)  // which vocab.txt cannot say
    if (const auto found = token_spelled_.find(token.content);
        found != token_spelled_.end() && found->second >= pieces_) {
      Json& entry = config["added_tokens_decoder"][fmt::format("{}", found->second)];
      entry = {{"content", token.content}};
      entry.update(settings_of(token));
    }
  LOOM_TRY(format::write_json(join_path(folder, "tokenizer_config.json"), config));
  return format::write_json(join_path(folder, "tokenizer.json"), tokenizer_json(model_));
}

}  // namespace loom::text
