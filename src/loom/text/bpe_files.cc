// The files of a byte-level BPE: Hugging Face's tokenizer.json, and GPT-2's own vocab.json with merges.txt.
// Only what changes the tokens is looked at; a setting that Loom does not have is refused, since its tokens
// would silently be others.
#include <algorithm>
#include <optional>
#include <set>

#include "base/file.h"
#include "format/json_file.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/files_beside.h"
#include "text/template_json.h"
#include "text/text_file.h"
#include "text/tokenizer_json.h"

namespace loom::text {
namespace {

using format::Json;
using format::SortedJson;

constexpr char kMergesHead[] = "#version: 0.2\n";
constexpr char kGpt2Class[] = "GPT2Tokenizer", kNeoXClass[] = "GPTNeoXTokenizer",
               kRobertaClass[] = "RobertaTokenizer", kBloomClass[] = "BloomTokenizer",
               kLlamaClass[] = "LlamaTokenizer", kQwen2Class[] = "Qwen2Tokenizer";
/// The expressions of text/words.h as tokenizer.json spells them.
constexpr char kGpt2Words[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kBloomWords[] = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
constexpr char kLlama3Words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2Words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::pair<WordRule, const char*> kExpressions[] = {{WordRule::gpt2, kGpt2Words},
                                                             {WordRule::bloom, kBloomWords},
                                                             {WordRule::llama3, kLlama3Words},
                                                             {WordRule::qwen2, kQwen2Words}};

bool is_unset(const SortedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() || *found == false || *found == "";
}

/// Refuses settings that are set.
Status check_unset(const SortedJson& object, std::initializer_list<const char*> keys, const char* where) {
  for (const char* key : keys) {
    if (!is_unset(object, key)) {
      return fail(Code::unsupported, "{} has \"{}\": {}, which Loom's byte-level BPE does not have", where,
                  key, quote(object[key]));
    }
  }
  return {};
}

/// Numbers may have gaps, but not so many that a file could ask for any amount of memory.
Status check_number(const std::string& spelling, const SortedJson& number, size_t most) {
  if (number.is_number_unsigned() && number.get<uint64_t>() < most) return {};
  return fail(Code::invalid_data, "token \"{}\" has the number {}, must be in [0, {})", spelling,
              quote(number), most);
}

Status add_token(const std::string& spelling, const SortedJson& number, size_t most, BpeModel& model,
                 bool added) {
  LOOM_TRY(check_number(spelling, number, most));
  const size_t id = number.get<size_t>();
  if (id >= model.vocabulary.size()) model.vocabulary.resize(id + 1);
  const std::optional<std::string> bytes = added ? spelling : unspell(spelling);
  if (!bytes || bytes->empty()) {
    return fail(Code::invalid_data, "token \"{}\" is no spelling of bytes: no byte-level BPE", spelling);
  }
  std::string& place = model.vocabulary[id];
  if (!place.empty() && place != *bytes) {
    return fail(Code::invalid_data, "two tokens have the number {}, \"{}\" is one of them", id, spelling);
  }
  place = *bytes;
  return {};
}

Status add_merge(std::string_view left, std::string_view right, const SortedJson& vocabulary,
                 BpeModel& model) {
  const auto first = vocabulary.find(std::string(left)), second = vocabulary.find(std::string(right));
  if (first == vocabulary.end() || second == vocabulary.end()) {
    return fail(Code::invalid_data, "merge {} is \"{} {}\", but \"{}\" is no token of the vocabulary",
                model.merges.size(), left, right, first == vocabulary.end() ? left : right);
  }
  model.merges.emplace_back(first->get<Token>(), second->get<Token>());
  return {};
}

Status add_merge_line(std::string_view line, const SortedJson& vocabulary, BpeModel& model) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return fail(Code::invalid_data, "merge {} is \"{}\", must be two tokens with a space between",
                model.merges.size(), line);
  }
  return add_merge(line.substr(0, space), line.substr(space + 1), vocabulary, model);
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

/// `added` and what lies beside them become the model's added tokens.
Status add_added(std::vector<AddedToken> added, const FilesBeside& beside, const SortedJson& vocabulary,
                 size_t most, BpeModel& model) {
  const Result<std::optional<bool>> split = beside.flag("split_special_tokens");
  LOOM_TRY(split.status());
  if (!split->value_or(false))
    LOOM_TRY(beside.add_to(added, numbers_in(vocabulary), next_number(vocabulary)));
  for (const AddedToken& token : added)
    LOOM_TRY(add_token(token.content, static_cast<uint64_t>(token.id), most + 2 * added.size(), model, true));
  model.added = std::move(added);
  model.names = beside.names();
  return {};
}

/// A special token that is spelled out in a text is itself. Bytes alone, which have no merges, spell it.
Status check_whole_special_tokens(const FilesBeside& beside, const BpeModel& model) {
  const Result<std::optional<bool>> split = beside.flag("split_special_tokens");
  LOOM_TRY(split.status());
  if (!split->value_or(false) || model.merges.empty()) return {};
  return fail(Code::unsupported, "\"split_special_tokens\" of {} is true; only false is supported",
              beside.config_path());
}

/// Whether a template has what tokenizer_config.json asks for around a text.
Status check_ends(const FilesBeside& beside, const BpeModel& model) {
  const SequenceTemplate around = model.around.value_or(SequenceTemplate());
  for (const auto& [key, there] :
       {std::pair("add_bos_token", !around.before.empty()), {"add_eos_token", !around.after.empty()}}) {
    LOOM_TRY(beside.check_same(key, there));
  }
  return {};
}

Status read_vocabulary(const SortedJson& vocabulary, size_t most, BpeModel& model) {
  if (!vocabulary.is_object()) {
    return fail(Code::invalid_data, "the vocabulary is {}, must be an object", quote(vocabulary));
  }
  std::set<std::string_view> added;
  for (const AddedToken& token : model.added) added.insert(token.content);
  for (const auto& [spelling, number] : vocabulary.items()) {
    LOOM_TRY(add_token(spelling, number, most, model, added.contains(spelling)));
  }
  return {};
}

Status read_merges(const SortedJson& merges, const SortedJson& vocabulary, BpeModel& model) {
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

/// How words are cut by a Sequence of a Split, whose matches and what lies between them are words, and a
/// ByteLevel that spells their bytes; nothing where it is another.
std::optional<WordRule> split_rule(const SortedJson& json) {
  if (!is_type(json, "Sequence") || !json.contains("pretokenizers")) return std::nullopt;
  const SortedJson& steps = json["pretokenizers"];
  if (!steps.is_array() || steps.size() != 2 || !is_type(steps[0], "Split") ||
      !is_type(steps[1], "ByteLevel"))
    return std::nullopt;
  if (steps[1].value("use_regex", SortedJson(true)) != false || !is_unset(steps[1], "add_prefix_space"))
    return std::nullopt;
  if (steps[0].value("behavior", SortedJson()) != "Isolated" || !is_unset(steps[0], "invert"))
    return std::nullopt;
  const SortedJson pattern = steps[0].value("pattern", SortedJson());
  for (const auto& [rule, expression] : kExpressions)
    if (pattern == SortedJson{{"Regex", expression}}) return rule;
  return std::nullopt;
}

/// What stands around the model in a tokenizer.json.
Status read_pipeline(const SortedJson& json, BpeModel& model) {
  if (!is_unset(json, "normalizer")) {
    if (!is_type(json["normalizer"], "NFC")) {
      return fail(Code::unsupported, "\"normalizer\" is {}, must be none or NFC", quote(json["normalizer"]));
    }
    model.normalize_nfc = true;
  }
  const SortedJson words = json.value("pre_tokenizer", SortedJson());
  if (const std::optional<WordRule> rule = split_rule(words)) {
    model.words = *rule;
    return {};
  }
  if (!is_type(words, "ByteLevel") || words.value("use_regex", SortedJson(true)) != true) {
    return fail(Code::unsupported,
                "\"pre_tokenizer\" is {}, must be GPT-2's ByteLevel, or a Sequence of a Split by the "
                "expression of GPT-2, BLOOM, Llama 3 or Qwen2 (Isolated) and a ByteLevel without one",
                quote(words));
  }
  model.add_prefix_space = !is_unset(words, "add_prefix_space");
  return {};
}

Result<BpeModel> model_of(const SortedJson& json, const FilesBeside& beside) {
  const auto model_json = json.is_object() ? json.find("model") : json.end();
  if (!json.is_object() || model_json == json.end() || !model_json->is_object()) {
    return fail(Code::invalid_data, "it has no object \"model\": no tokenizer.json");
  }
  if (model_json->value("type", SortedJson("BPE")) != "BPE") {
    return fail(Code::unsupported, "the model is {}, must be BPE or WordPiece", quote((*model_json)["type"]));
  }
  LOOM_TRY(check_unset(*model_json, {"continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"},
                       "the model"));
  if (model_json->value("dropout", SortedJson()) != 0)
    LOOM_TRY(check_unset(*model_json, {"dropout"}, "the model"));
  BpeModel model;
  model.whole_words = !is_unset(*model_json, "ignore_merges");
  LOOM_TRY(read_pipeline(json, model));
  LOOM_TRY(beside.check_same("add_prefix_space", model.add_prefix_space));
  Result<std::optional<SequenceTemplate>> around = template_of(json.value("post_processor", SortedJson()));
  LOOM_TRY(around.status());
  model.around = around.take();
  const SortedJson vocabulary = model_json->value("vocab", SortedJson());
  const SortedJson listed = json.value("added_tokens", SortedJson::array());
  const size_t most = 2 * (vocabulary.size() + listed.size());
  Result<std::vector<AddedToken>> added = added_tokens_of(listed, most);
  LOOM_TRY(added.status());
  const SortedJson merges = model_json->value("merges", SortedJson());
  LOOM_TRY(add_added(added.take(), beside, vocabulary, most, model));
  LOOM_TRY(read_vocabulary(vocabulary, most, model));
  LOOM_TRY(read_merges(merges, vocabulary, model));
  LOOM_TRY(check_whole_special_tokens(beside, model));
  LOOM_TRY(check_ends(beside, model));
  return model;
}

/// The tokenizer's class, of which the roles get those tokens that no file names. Where no file names the
/// class, it is that of the model's family, or else told by the vocabulary: RoBERTa's or GPT-2's.
Result<std::string> set_class_defaults(const SortedJson& vocabulary, FilesBeside& beside) {
  std::string name = beside.tokenizer_class();
  const bool generic = name.empty() || name == "PreTrainedTokenizer" || name == "TokenizersBackend";
  const std::string& usual = beside.usual_class();
  const auto families = {kRobertaClass, kGpt2Class, kNeoXClass, kBloomClass, kLlamaClass, kQwen2Class};
  if (generic && std::find(families.begin(), families.end(), usual) != families.end()) name = usual;
  else if (generic && vocabulary.is_object())
    name = vocabulary.contains("<s>") && vocabulary.contains("<mask>") ? kRobertaClass : kGpt2Class;
  const auto token = [](const char* content, bool left_strip = false) {
    AddedToken made;
    made.content = content;
    made.left_strip = left_strip;
    return made;
  };
  if (name == kRobertaClass) {
    for (const char* role : {"bos_token", "cls_token"}) beside.set_default(role, token("<s>"));
    for (const char* role : {"eos_token", "sep_token"}) beside.set_default(role, token("</s>"));
    beside.set_default("unk_token", token("<unk>"));
    beside.set_default("pad_token", token("<pad>"));
    beside.set_default("mask_token", token("<mask>", true));
  } else if (name == kGpt2Class || name == kNeoXClass) {
    for (const char* role : {"bos_token", "eos_token", "unk_token"})
      beside.set_default(role, token(kEndOfTextSpelling));
    if (name == kNeoXClass) beside.set_default("pad_token", token("<|padding|>"));
  } else if (name == kQwen2Class) {
    for (const char* role : {"eos_token", "unk_token", "pad_token"})
      beside.set_default(role, token(kEndOfTextSpelling));
  } else {
    return fail(
        Code::unsupported,
        "the tokenizer is a {}, of which vocab.json and merges.txt alone do not say how it cuts texts: must "
        "be a GPT2Tokenizer, GPTNeoXTokenizer, RobertaTokenizer or Qwen2Tokenizer, or have a tokenizer.json "
        "(`AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)` writes it)",
        name);
  }
  return name;
}

/// What a tokenizer's class puts around a text: RoBERTa's beginning and end, or what GPT-2's is asked for,
/// whichever other roles its tokens have.
Status set_class_template(const std::string& name, const FilesBeside& beside, BpeModel& model) {
  const auto number = [&](const char* role) -> std::vector<Token> {
    for (const AddedToken& token : model.added)
      if (token.content == beside.role(role).value_or("")) return {token.id};
    return {};
  };
  if (name == kRobertaClass) {
    model.around = {number("cls_token"), number("sep_token")};
    return {};
  }
  model.around.emplace();
  const Result<std::optional<bool>> begin = beside.flag("add_bos_token"), end = beside.flag("add_eos_token");
  LOOM_TRY(begin.status());
  LOOM_TRY(end.status());
  if (begin->value_or(false)) model.around->before = number("bos_token");
  if (end->value_or(false)) model.around->after = number("eos_token");
  return {};
}

Result<BpeModel> model_of(const SortedJson& vocabulary, std::string_view merges, FilesBeside beside) {
  BpeModel model;
  const Result<std::string> name = set_class_defaults(vocabulary, beside);
  LOOM_TRY(name.status());
  model.normalize_nfc = *name == kNeoXClass || *name == kQwen2Class;
  if (*name == kQwen2Class) model.words = WordRule::qwen2;
  LOOM_TRY(add_added({}, beside, vocabulary, 2 * vocabulary.size(), model));
  if (!model.normalize_nfc)
    for (AddedToken& token : model.added) token.normalized = false;
  LOOM_TRY(set_class_template(*name, beside, model));
  const Result<std::optional<bool>> prefix = beside.flag("add_prefix_space");
  LOOM_TRY(prefix.status());
  model.add_prefix_space = prefix->value_or(false);
  LOOM_TRY(read_vocabulary(vocabulary, 2 * vocabulary.size() + 2 * model.added.size(), model));
  for (size_t at = 0; at < merges.size();) {
    const size_t end = std::min(merges.find('\n', at), merges.size());
    std::string_view line = merges.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) LOOM_TRY(add_merge_line(line, vocabulary, model));
  }
  LOOM_TRY(check_whole_special_tokens(beside, model));
  return model;
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

Json byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

/// What read_pipeline() reads.
Json pre_tokenizer_of(const BpeModel& model) {
  Json bytes = byte_level(model.add_prefix_space);
  if (model.words == WordRule::gpt2) return bytes;
  bytes["use_regex"] = false;
  const char* const expression = kExpressions[static_cast<size_t>(model.words)].second;
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

}  // namespace

Json byte_level_json(const BpeModel& model, const Json& vocabulary, const Json& merges) {
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = added_json(model.added);
  std::vector<std::string> names(model.vocabulary.size());
  for (const AddedToken& token : model.added) names[static_cast<size_t>(token.id)] = token.content;
  json["normalizer"] = model.normalize_nfc ? Json{{"type", "NFC"}} : Json();
  json["pre_tokenizer"] = pre_tokenizer_of(model);
  json["post_processor"] = post_processor_json(model.around.value_or(SequenceTemplate()), names, true);
  json["decoder"] = byte_level(model.add_prefix_space);
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

Result<std::shared_ptr<const BpeTokenizer>> BpeTokenizer::from_tokenizer_json(const std::string& path) {
  const Result<SortedJson> json = format::read_sorted_json(path);
  if (!json.ok()) return json.status();
  Result<FilesBeside> beside = FilesBeside::read(folder_of(path));
  LOOM_TRY(beside.status());
  Result<BpeModel> model = model_of(*json, *beside);
  if (!model.ok()) return model.status().in(path);
  Result<std::shared_ptr<const BpeTokenizer>> tokenizer = make(model.take());
  if (!tokenizer.ok()) return tokenizer.status().in(path);
  return tokenizer;
}

Result<std::shared_ptr<const BpeTokenizer>> BpeTokenizer::from_vocabulary(const std::string& vocab_json,
                                                                          const std::string& merges_txt) {
  const Result<SortedJson> vocabulary = format::read_sorted_json(vocab_json);
  if (!vocabulary.ok()) return vocabulary.status();
  const Result<std::string> merges = read_file(merges_txt);
  if (!merges.ok()) return merges.status();
  Result<FilesBeside> beside = FilesBeside::read(folder_of(vocab_json));
  LOOM_TRY(beside.status());
  Result<BpeModel> model = model_of(*vocabulary, without_mark(*merges), beside.take());
  if (!model.ok()) return model.status().in(fmt::format("{} and {}", vocab_json, merges_txt));
  Result<std::shared_ptr<const BpeTokenizer>> tokenizer = make(model.take());
  if (!tokenizer.ok()) return tokenizer.status().in(vocab_json);
  return tokenizer;
}

/// Older versions of `tokenizers` do not find an added token that the vocabulary has, too, if it is not
/// special. Such tokens at its end, and what comes behind them, are left out where no merge makes them.
size_t BpeTokenizer::end_of_pieces() const {
  constexpr char kAdded = 1, kPlain = 2;
  std::vector<char> kinds(spellings_.size());
  for (const AddedToken& token : model_.added)
    kinds[static_cast<size_t>(token.id)] = token.special ? kAdded : kPlain;
  size_t end = spellings_.size(), least = 0;
  for (const auto& [pair, merge] : merges_) least = std::max(least, static_cast<size_t>(merge.result) + 1);
  for (size_t id = end; id > least && kinds[id - 1] != 0; --id)
    if (kinds[id - 1] == kPlain) end = id - 1;
  return end;
}

Status BpeTokenizer::save(const std::string& folder) const {
  Json::object_t entries, pieces;  // in the order of numbers; looking for equal keys would take time squared
  const size_t end = end_of_pieces();
  for (size_t id = 0; id < spellings_.size(); ++id) {
    if (spellings_[id].empty()) continue;
    entries.push_back({spellings_[id], id});
    if (id < end) pieces.push_back({spellings_[id], id});
  }
  const Json vocabulary(std::move(entries));
  std::string merges_text = kMergesHead;
  Json merges = Json::array();
  for (const auto& [left, right] : model_.merges) {
    const std::string line =
        fmt::format("{} {}", spellings_[static_cast<size_t>(left)], spellings_[static_cast<size_t>(right)]);
    merges.push_back(line);
    merges_text += line;
    merges_text += '\n';
  }
  Json roles = Json::object();
  const auto name = [&](const char* role, std::optional<Token> token) {
    if (token) roles[role] = model_.vocabulary[static_cast<size_t>(*token)];
  };
  name("bos_token", begin_of_text());
  name("eos_token", end_of_text());
  const SequenceTemplate& around = *model_.around;
  if (around.before.size() == 1 && around.after.size() == 1 && specials_.begin == around.before[0] &&
      specials_.end == around.after[0]) {
    name("cls_token", specials_.begin);
    name("sep_token", specials_.end);
  }
  name("mask_token", specials_.mask);
  name("pad_token", specials_.padding);
  if (model_.words == WordRule::gpt2 || model_.words == WordRule::bloom) {
    LOOM_TRY(write_file(join_path(folder, "merges.txt"), merges_text));
    LOOM_TRY(format::write_json(join_path(folder, "vocab.json"), vocabulary));
  }
  LOOM_TRY(write_tokenizer_config(folder, roles));
  return format::write_json(join_path(folder, "tokenizer.json"),
                            byte_level_json(model_, Json(std::move(pieces)), merges));
}

}  // namespace loom::text
