// The files of a byte-level BPE: Hugging Face's tokenizer.json, and GPT-2's own vocab.json with merges.txt.
#include <algorithm>
#include <optional>

#include "base/file.h"
#include "format/json_file.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/files_beside.h"
#include "text/pair_files.h"
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
  const Result<const SortedJson*> bpe = bpe_of(json);
  LOOM_TRY(bpe.status());
  LOOM_TRY(check_unset(**bpe, {"byte_fallback"}, "the model of a byte-level BPE"));
  BpeModel model;
  LOOM_TRY(read_pipeline(json, model));
  LOOM_TRY(beside.check_same("add_prefix_space", model.add_prefix_space));
  LOOM_TRY(read_pairs(json, **bpe, beside, unspell, model));
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
  LOOM_TRY(read_vocabulary(vocabulary, 2 * vocabulary.size() + 2 * model.added.size(), unspell, model));
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
  Json json = pairs_json(model, vocabulary, merges, true);
  if (model.normalize_nfc) json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = pre_tokenizer_of(model);
  json["decoder"] = byte_level(model.add_prefix_space);
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

Status BpeTokenizer::save(const std::string& folder) const {
  const Json merges = merges_json();
  if (model_.words == WordRule::gpt2 || model_.words == WordRule::bloom) {
    std::string lines = kMergesHead;
    for (const Json& line : merges) lines += line.get_ref<const std::string&>() + '\n';
    LOOM_TRY(write_file(join_path(folder, "merges.txt"), lines));
    LOOM_TRY(format::write_json(join_path(folder, "vocab.json"), vocabulary_json(model_.vocabulary.size())));
  }
  LOOM_TRY(write_tokenizer_config(folder, roles_json()));
  return format::write_json(join_path(folder, "tokenizer.json"),
                            byte_level_json(model_, vocabulary_json(end_of_pieces()), merges));
}

}  // namespace loom::text
