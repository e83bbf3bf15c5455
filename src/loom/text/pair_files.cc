#include "text/pair_files.h"

#include <algorithm>
#include <set>

#include "text/template_json.h"
#include "text/tokenizer_json.h"

namespace loom::text {

using format::Json;
using format::SortedJson;

bool is_unset(const SortedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() || *found == false || *found == "";
}

Status check_unset(const SortedJson& object, std::initializer_list<const char*> keys, const char* where) {
  for (const char* key : keys) {
    if (!is_unset(object, key)) {
      return fail(Code::unsupported, "{} has \"{}\": {}, which Loom's BPE does not have", where, key,
                  quote(object[key]));
    }
  }
  return {};
}

namespace {

Status check_number(const std::string& spelling, const SortedJson& number, size_t most) {
  if (number.is_number_unsigned() && number.get<uint64_t>() < most) return {};
  return fail(Code::invalid_data, "token \"{}\" has the number {}, must be in [0, {})", spelling,
              quote(number), most);
}

Status add_token(const std::string& spelling, const SortedJson& number, size_t most,
                 const std::optional<std::string>& bytes, PairModel& model) {
  LOOM_TRY(check_number(spelling, number, most));
  const size_t id = number.get<size_t>();
  if (id >= model.vocabulary.size()) model.vocabulary.resize(id + 1);
  if (!bytes)
    return fail(Code::invalid_data, "token \"{}\" is no spelling of bytes: no byte-level BPE", spelling);
  if (bytes->empty()) return fail(Code::invalid_data, "token {} is empty, must be a text", id);
  std::string& place = model.vocabulary[id];
  if (!place.empty() && place != *bytes) {
    return fail(Code::invalid_data, "two tokens have the number {}, \"{}\" is one of them", id, spelling);
  }
  place = *bytes;
  return {};
}

Status add_merge(std::string_view left, std::string_view right, const SortedJson& vocabulary,
                 PairModel& model) {
  const auto first = vocabulary.find(std::string(left)), second = vocabulary.find(std::string(right));
  if (first == vocabulary.end() || second == vocabulary.end()) {
    return fail(Code::invalid_data, "merge {} is \"{} {}\", but \"{}\" is no token of the vocabulary",
                model.merges.size(), left, right, first == vocabulary.end() ? left : right);
  }
  // Files with merges as lines cannot have them.
  if (left.find(' ') != std::string_view::npos || right.find(' ') != std::string_view::npos)
    return fail(Code::unsupported, "merge {} is of \"{}\" and \"{}\", must be of tokens without a space",
                model.merges.size(), left, right);
  model.merges.emplace_back(first->get<Token>(), second->get<Token>());
  return {};
}

Result<std::vector<AddedToken>> added_tokens_of(const SortedJson& json, size_t most) {
  if (!json.is_array())
    return fail(Code::invalid_data, "\"added_tokens\" is {}, must be a list", quote(json));
  std::vector<AddedToken> added;
  for (const SortedJson& item : json) {
    const bool named =
        item.is_object() && item.contains("content") && item["content"].is_string() && item.contains("id");
    if (!named) return fail(Code::invalid_data, "added token {} must have an id and a content", quote(item));
    LOOM_TRY(check_unset(item, {"single_word"}, "an added token"));
    AddedToken token;
    token.content = item["content"].get<std::string>();
    LOOM_TRY(check_number(token.content, item["id"], most));
    token.id = item["id"].get<Token>();
    token.special = !is_unset(item, "special");
    token.left_strip = !is_unset(item, "lstrip");
    token.right_strip = !is_unset(item, "rstrip");
    token.normalized = !is_unset(item, "normalized");
    added.push_back(std::move(token));
  }
  return added;
}

/// Whether a template has what tokenizer_config.json asks for around a text.
Status check_ends(const FilesBeside& beside, const PairModel& model) {
  const SequenceTemplate around = model.around.value_or(SequenceTemplate());
  for (const auto& [key, there] :
       {std::pair("add_bos_token", !around.before.empty()), {"add_eos_token", !around.after.empty()}}) {
    LOOM_TRY(beside.check_same(key, there));
  }
  return {};
}

Status read_merges(const SortedJson& merges, const SortedJson& vocabulary, PairModel& model) {
  if (!merges.is_array()) return fail(Code::invalid_data, "\"merges\" is {}, must be a list", quote(merges));
  for (const SortedJson& merge : merges) {
    if (merge.is_string()) {
      LOOM_TRY(add_merge_line(merge.get_ref<const std::string&>(), vocabulary, model));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      LOOM_TRY(add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(),
                         vocabulary, model));
    } else {
      return fail(Code::invalid_data, "merge {} is {}, must be two tokens", model.merges.size(),
                  quote(merge));
    }
  }
  return {};
}

Json added_json(const std::vector<AddedToken>& added) {
  Json list = Json::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", false},
                    {"lstrip", token.left_strip},
                    {"rstrip", token.right_strip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

}  // namespace

Status add_merge_line(std::string_view line, const SortedJson& vocabulary, PairModel& model) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return fail(Code::invalid_data, "merge {} is \"{}\", must be two tokens with a space between",
                model.merges.size(), line);
  }
  return add_merge(line.substr(0, space), line.substr(space + 1), vocabulary, model);
}

Status add_added(std::vector<AddedToken> added, const FilesBeside& beside, const SortedJson& vocabulary,
                 size_t most, PairModel& model) {
  const Result<std::optional<bool>> split = beside.flag("split_special_tokens");
  LOOM_TRY(split.status());
  if (!split->value_or(false))
    LOOM_TRY(beside.add_to(added, numbers_in(vocabulary), next_number(vocabulary)));
  for (const AddedToken& token : added)
    LOOM_TRY(add_token(token.content, static_cast<uint64_t>(token.id), most + 2 * added.size(), token.content,
                       model));
  model.added = std::move(added);
  model.names = beside.names();
  return {};
}

Status check_whole_special_tokens(const FilesBeside& beside, const PairModel& model) {
  const Result<std::optional<bool>> split = beside.flag("split_special_tokens");
  LOOM_TRY(split.status());
  if (!split->value_or(false) || model.merges.empty()) return {};
  return fail(Code::unsupported, "\"split_special_tokens\" of {} is true; only false is supported",
              beside.config_path());
}

Status read_vocabulary(const SortedJson& vocabulary, size_t most, const Unspell& unspell, PairModel& model) {
  if (!vocabulary.is_object()) {
    return fail(Code::invalid_data, "the vocabulary is {}, must be an object", quote(vocabulary));
  }
  std::set<std::string_view> added;
  for (const AddedToken& token : model.added) added.insert(token.content);
  for (const auto& [spelling, number] : vocabulary.items()) {
    const std::optional<std::string> bytes = added.contains(spelling) ? spelling : unspell(spelling);
    LOOM_TRY(add_token(spelling, number, most, bytes, model));
  }
  return {};
}

Result<const SortedJson*> bpe_of(const SortedJson& json) {
  const auto bpe = json.is_object() ? json.find("model") : json.end();
  if (!json.is_object() || bpe == json.end() || !bpe->is_object())
    return fail(Code::invalid_data, "it has no object \"model\": no tokenizer.json");
  if (bpe->value("type", SortedJson("BPE")) != "BPE")
    return fail(Code::unsupported, "the model is {}, must be BPE or WordPiece", quote((*bpe)["type"]));
  LOOM_TRY(check_unset(*bpe, {"continuing_subword_prefix", "end_of_word_suffix"}, "the model"));
  if (bpe->value("dropout", SortedJson()) != 0) LOOM_TRY(check_unset(*bpe, {"dropout"}, "the model"));
  return &*bpe;
}

Status read_pairs(const SortedJson& json, const SortedJson& bpe, const FilesBeside& beside,
                  const Unspell& unspell, PairModel& model) {
  model.whole_words = !is_unset(bpe, "ignore_merges");
  Result<std::optional<SequenceTemplate>> around = template_of(json.value("post_processor", SortedJson()));
  LOOM_TRY(around.status());
  model.around = around.take();
  const SortedJson& vocabulary = part_of(bpe, "vocab");
  const SortedJson listed = json.value("added_tokens", SortedJson::array());
  const size_t most = 2 * (vocabulary.size() + listed.size());
  Result<std::vector<AddedToken>> added = added_tokens_of(listed, most);
  LOOM_TRY(added.status());
  LOOM_TRY(add_added(added.take(), beside, vocabulary, most, model));
  LOOM_TRY(read_vocabulary(vocabulary, most, unspell, model));
  LOOM_TRY(read_merges(part_of(bpe, "merges"), vocabulary, model));
  LOOM_TRY(check_whole_special_tokens(beside, model));
  return check_ends(beside, model);
}

Json pairs_json(const PairModel& model, const Json& vocabulary, const Json& merges, bool byte_level) {
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = added_json(model.added);
  std::vector<std::string> names(model.vocabulary.size());
  for (const AddedToken& token : model.added) names[static_cast<size_t>(token.id)] = token.content;
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = post_processor_json(model.around.value_or(SequenceTemplate()), names, byte_level);
  json["decoder"] = nullptr;
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"vocab", vocabulary},
                   {"merges", merges}};
  if (model.whole_words) json["model"]["ignore_merges"] = true;  // older versions do not know the key
  return json;
}

}  // namespace loom::text
