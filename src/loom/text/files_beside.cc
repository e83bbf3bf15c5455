#include "text/files_beside.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/file.h"

namespace loom::text {
namespace {

using format::Json;

/// In the order in which `transformers` gives numbers to those that the vocabulary lacks.
constexpr std::array kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};

Result<Json> read_if_there(const std::string& path) {
  if (!is_file(path)) return Json(Json::object());
  Result<Json> json = format::read_json(path);
  LOOM_TRY(json.status());
  if (!json->is_object()) return fail(Code::invalid_data, "{} must be an object", path);
  return json;
}

/// A token stands there as a text, or as an object of its content and its settings.
Result<AddedToken> token_of(const Json& json) {
  AddedToken token;
  if (json.is_string()) {
    token.content = json.get<std::string>();
  } else {
    const Result<std::string> content = format::required<std::string>(json, "content");
    LOOM_TRY(content.status());
    token.content = *content;
    for (const auto& [key, into] : {std::pair("special", &token.special),
                                    {"lstrip", &token.left_strip},
                                    {"rstrip", &token.right_strip},
                                    {"normalized", &token.normalized}}) {
      const Result<bool> value = format::value_or<bool>(json, key, *into);
      LOOM_TRY(value.status());
      *into = *value;
    }
    const Result<bool> single = format::value_or<bool>(json, "single_word", false);
    LOOM_TRY(single.status());
    if (*single)
      return fail(Code::unsupported,
                  "\"single_word\" of the added token \"{}\" is true; only false is supported",
                  token.content);
  }
  if (token.content.empty()) return fail(Code::invalid_data, "a token is empty, must be a text");
  return token;
}

/// The tokenizer of a family of models.
std::string class_of(const std::string& model_type) {
  if (model_type == "gpt2" || model_type == "gptj" || model_type == "gpt_neo") return "GPT2Tokenizer";
  if (model_type == "gpt_neox") return "GPTNeoXTokenizer";
  if (model_type == "bloom") return "BloomTokenizer";
  if (model_type == "bert") return "BertTokenizer";
  if (model_type == "llama" || model_type == "mistral") return "LlamaTokenizer";
  if (model_type == "qwen2" || model_type == "qwen3") return "Qwen2Tokenizer";
  return model_type == "roberta" ? "RobertaTokenizer" : "";
}

}  // namespace

Result<FilesBeside> FilesBeside::read(const std::string& folder) {
  FilesBeside files;
  files.config_path_ = join_path(folder, "tokenizer_config.json");
  Result<Json> config = read_if_there(files.config_path_);
  LOOM_TRY(config.status());
  files.config_ = config.take();
  LOOM_TRY(files.read_added(files.config_.value("added_tokens_decoder", Json()), files.config_path_));
  const std::string numbers = join_path(folder, "added_tokens.json");
  const Result<Json> numbered = read_if_there(numbers);
  LOOM_TRY(numbered.status());
  LOOM_TRY(files.read_numbered(*numbered, numbers).in(numbers));
  LOOM_TRY(files.read_roles(files.config_, files.config_path_));
  const std::string map = join_path(folder, "special_tokens_map.json");
  const Result<Json> roles = read_if_there(map);
  LOOM_TRY(roles.status());
  LOOM_TRY(files.read_roles(*roles, map));
  files.read_class(folder);
  return files;
}

void FilesBeside::read_class(const std::string& folder) {
  const auto text = [](const Json& json, const char* key) {
    const Json value = json.is_object() ? json.value(key, Json()) : Json();
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  class_ = text(config_, "tokenizer_class");
  // A config.json that is damaged is for those to refuse who need the model.
  const Result<Json> model = format::read_json(join_path(folder, "config.json"));
  if (model.ok()) usual_class_ = class_of(text(*model, "model_type"));
  if (model.ok() && class_.empty()) class_ = text(*model, "tokenizer_class");
  if (class_.ends_with("Fast")) class_.resize(class_.size() - 4);
}

Status FilesBeside::read_added(const Json& tokens, const std::string& path) {
  if (tokens.is_null()) return {};
  const std::string source = fmt::format("\"added_tokens_decoder\" of {}", path);
  if (!tokens.is_object()) return fail(Code::invalid_data, "{} must be an object", source);
  for (const auto& [number, json] : tokens.items()) {
    Result<AddedToken> token = token_of(json);
    LOOM_TRY(token.status().in(source));
    const bool digits =
        !number.empty() && number.size() < 10 &&
        std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits)
      return fail(Code::invalid_data, "{} has the number \"{}\", must be in [0, 2^31)", source, number);
    token->id = static_cast<Token>(std::stol(number));
    numbered_[token->id] = {token.take(), source, true, false};
  }
  return {};
}

/// {text: number}; a token that also is special is one by its role.
Status FilesBeside::read_numbered(const Json& tokens, const std::string& path) {
  for (const auto& [content, json] : tokens.items()) {
    const Result<int> number = format::required<int>(tokens, content);
    LOOM_TRY(number.status());
    if (*number < 0) return fail(Code::invalid_data, "\"{}\" is {}, must not be negative", content, *number);
    const auto [place, isnew] = numbered_.try_emplace(*number);
    if (!isnew && place->second.token.content != content)
      return fail(Code::invalid_argument, "token {} is \"{}\", and \"{}\" in {}: must be the same in both",
                  *number, content, place->second.token.content, place->second.source);
    if (!isnew) continue;
    AddedToken& token = place->second.token;
    token.content = content;
    token.id = *number;
    token.special = false;
    token.normalized = true;
    place->second.source = path;
  }
  return {};
}

Status FilesBeside::read_roles(const Json& json, const std::string& path) {
  for (const char* role : kRoles)
    if (json.contains(role)) LOOM_TRY(add_role(role, json[role], path));
  bool replaced = false;  // special_tokens_map.json comes last, and replaces both lists by its own
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json tokens = json.value(list, Json());
    if (!tokens.is_array() && !tokens.is_object()) continue;
    if (!std::exchange(replaced, true)) more_.clear();
    for (const auto& [key, item] : tokens.items()) {
      Result<AddedToken> token = token_of(item);
      LOOM_TRY(token.status().in(fmt::format("\"{}\" of {}", list, path)));
      const std::string content = token->content;
      const bool known = std::any_of(more_.begin(), more_.end(),
                                     [&](const Named& named) { return named.token.content == content; });
      if (!known)
        more_.push_back({token.take(), fmt::format("\"{}\" of {}", list, path), item.is_object(), false});
    }
  }
  return {};
}

Status FilesBeside::add_role(const std::string& role, const Json& json, const std::string& path) {
  const std::string source = fmt::format("\"{}\" of {}", role, path);
  Named named;
  named.source = source;
  named.described = json.is_object();
  if (!json.is_null()) {
    Result<AddedToken> token = token_of(json);
    LOOM_TRY(token.status().in(source));
    named.token = token.take();
  }
  const auto [place, isnew] = roles_.try_emplace(role, named);
  Named& other = place->second;
  if (isnew || named.token.content.empty()) return {};
  if (other.token.content.empty()) {
    other = named;
    return {};
  }
  if (other.token.content != named.token.content)
    return fail(Code::invalid_argument, "{} is \"{}\", and {} is \"{}\": must be the same token",
                other.source, other.token.content, source, named.token.content);
  if (!other.described) other = named;
  return {};
}

std::optional<std::string> FilesBeside::role(const std::string& name) const {
  const auto found = roles_.find(name);
  return found == roles_.end() ? std::nullopt : std::optional(found->second.token.content);
}

SpecialNames FilesBeside::names() const {
  const auto text = [&](const char* name) { return role(name).value_or(""); };
  SpecialNames names{text("cls_token"), text("sep_token"), text("mask_token"), text("pad_token"),
                     text("eos_token")};
  if (names.begin.empty() && text("bos_token") != names.end_of_text) names.begin = text("bos_token");
  return names;
}

void FilesBeside::set_default(const std::string& role, const AddedToken& token) {
  const auto [place, isnew] = roles_.try_emplace(role, Named{token, "the tokenizer's class", false, true});
  if (isnew || place->second.described || place->second.token.content != token.content) return;
  place->second.token = token;
}

Result<std::optional<bool>> FilesBeside::flag(const char* key) const {
  if (!config_.contains(key) || config_[key].is_null()) return std::optional<bool>();
  const Result<bool> value = format::required<bool>(config_, key);
  LOOM_TRY(value.status().in(config_path_));
  return std::optional(*value);
}

Status FilesBeside::check_same(const char* key, bool in_tokenizer_json) const {
  const Result<std::optional<bool>> value = flag(key);
  LOOM_TRY(value.status());
  if (!*value || **value == in_tokenizer_json) return {};
  return fail(Code::unsupported,
              "\"{}\" of {} is {}, but tokenizer.json beside it does the opposite: versions of transformers "
              "follow the one or the other; must be the same in both",
              key, config_path_, **value);
}

Status FilesBeside::check_empty(const char* key) const {
  if (!config_.contains(key) || config_[key].is_null() || config_[key].empty()) return {};
  return fail(Code::unsupported, "\"{}\" of {} is set; only none is supported", key, config_path_);
}

const FilesBeside::Named* FilesBeside::described(const std::string& content) const {
  for (const auto& [number, named] : numbered_)
    if (named.described && named.token.content == content) return &named;
  for (const auto& [role, named] : roles_)
    if (named.described && named.token.content == content) return &named;
  for (const Named& named : more_)
    if (named.described && named.token.content == content) return &named;
  return nullptr;
}

Status FilesBeside::add_to(std::vector<AddedToken>& added,
                           const std::function<std::optional<int64_t>(const std::string&)>& number_of,
                           int64_t next) const {
  const size_t before = added.size();
  const auto find = [&](const std::string& content) {
    return std::find_if(added.begin(), added.end(),
                        [&](const AddedToken& token) { return token.content == content; });
  };
  for (const AddedToken& token : added) next = std::max<int64_t>(next, token.id + int64_t{1});
  const auto add = [&](const Named& named, std::optional<int64_t> number, bool special) -> Status {
    const auto there = find(named.token.content);
    const std::optional<int64_t> known =
        there != added.end() ? std::optional<int64_t>(there->id) : number_of(named.token.content);
    const int64_t wanted = known.value_or(next);
    if (number && *number != wanted)
      return fail(Code::invalid_data, "{} has \"{}\" as token {}, must be {}: {}", named.source,
                  named.token.content, *number, wanted,
                  known ? "the number that it has in the vocabulary" : "the next one behind the vocabulary");
    if (there != added.end() || (!known && named.fallback)) return {};
    const Named* const full = described(named.token.content);
    AddedToken token = full != nullptr ? full->token : named.token;
    token.special = token.special || special;
    token.id = static_cast<Token>(wanted);
    added.push_back(token);
    next = std::max(next, wanted + 1);
    return {};
  };
  const auto is_special = [&](const std::string& content) {
    const auto same = [&](const Named& named) { return named.token.content == content; };
    return std::any_of(roles_.begin(), roles_.end(), [&](const auto& role) { return same(role.second); }) ||
           std::any_of(more_.begin(), more_.end(), same);
  };
  for (const auto& [number, named] : numbered_) {
    Named one = named;
    if (!one.described && is_special(one.token.content)) one.token.normalized = false;
    LOOM_TRY(add(one, number, is_special(one.token.content)));
  }
  for (const char* role : kRoles)
    if (const auto found = roles_.find(role); found != roles_.end() && !found->second.token.content.empty())
      LOOM_TRY(add(found->second, std::nullopt, true));
  for (const Named& named : more_) LOOM_TRY(add(named, std::nullopt, true));
  if (added.size() > before)
    std::sort(added.begin(), added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return {};
}

}  // namespace loom::text
