#include "text/sentencepiece_files.h"

#include "base/file.h"
#include "text/pair_files.h"
#include "text/tokenizer_json.h"

namespace loom::text {
namespace {

using format::Json;
using format::SortedJson;

constexpr std::pair<SpacePrefix, const char*> kSchemes[] = {
    {SpacePrefix::never, "never"}, {SpacePrefix::first, "first"}, {SpacePrefix::always, "always"}};

/// Whether a part of the file is {"type": TYPE, ...} with these settings, whatever else it has.
bool has_settings(const SortedJson& json, const char* type, const SortedJson& settings) {
  if (!is_type(json, type)) return false;
  for (const auto& [key, value] : settings.items())
    if (json.value(key, SortedJson()) != value) return false;
  return true;
}

/// The steps of a Sequence, if it is one of so many.
std::optional<SortedJson> steps_of(const SortedJson& json, const char* key, size_t count) {
  if (!is_type(json, "Sequence")) return std::nullopt;
  SortedJson steps = json.value(key, SortedJson());
  if (!steps.is_array() || steps.size() != count) return std::nullopt;
  return steps;
}

bool replaces(const SortedJson& step, const char* what, const char* by) {
  return has_settings(step, "Replace", {{"pattern", {{"String", what}}}, {"content", by}});
}

/// Where a Metaspace puts a space in front; nothing where it is no such one.
std::optional<SpacePrefix> scheme_of(const SortedJson& json) {
  if (!has_settings(json, "Metaspace", {{"replacement", kSpaceMark}, {"split", false}})) return std::nullopt;
  for (const auto& [prefix, name] : kSchemes)
    if (json.value("prepend_scheme", SortedJson("always")) == name) return prefix;
  return std::nullopt;
}

/// How spaces become marks: by the normalizer, or by the pre-tokenizer.
Result<SpacePrefix> read_marks(const SortedJson& json) {
  const SortedJson normalizer = json.value("normalizer", SortedJson()),
                   words = json.value("pre_tokenizer", SortedJson());
  if (normalizer.is_null()) {
    if (const std::optional<SpacePrefix> scheme = scheme_of(words)) return *scheme;
    return fail(
        Code::unsupported,
        "\"pre_tokenizer\" is {}, must be, with \"byte_fallback\" and no normalizer, Metaspace of "
        "\"replacement\" \"{}\", \"prepend_scheme\" \"first\", \"always\" or \"never\" and \"split\" false",
        quote(words), kSpaceMark);
  }
  const std::optional<SortedJson> steps = steps_of(normalizer, "normalizers", 2);
  if (!steps || !has_settings((*steps)[0], "Prepend", {{"prepend", kSpaceMark}}) ||
      !replaces((*steps)[1], " ", kSpaceMark))
    return fail(
        Code::unsupported,
        "\"normalizer\" is {}, must be, with \"byte_fallback\", none or a Sequence of Prepend \"{}\" and "
        "Replace of \" \" by \"{}\"",
        quote(normalizer), kSpaceMark, kSpaceMark);
  if (!words.is_null())
    return fail(Code::unsupported,
                "\"pre_tokenizer\" is {}, must be none where the normalizer replaces spaces", quote(words));
  return SpacePrefix::normalized;
}

/// Whether decoding takes away a space in front.
Result<bool> read_decoder(const SortedJson& json) {
  for (const size_t count : {3, 4}) {
    const std::optional<SortedJson> steps = steps_of(json, "decoders", count);
    if (!steps || !replaces((*steps)[0], kSpaceMark, " ") || !is_type((*steps)[1], "ByteFallback") ||
        !is_type((*steps)[2], "Fuse"))
      continue;
    if (count == 3) return false;
    if (has_settings((*steps)[3], "Strip", {{"content", " "}, {"start", 1}, {"stop", 0}})) return true;
  }
  return fail(Code::unsupported,
              "\"decoder\" is {}, must be, with \"byte_fallback\", a Sequence of Replace of \"{}\" by \" \", "
              "ByteFallback, Fuse and, or not, Strip of one \" \" at the start",
              quote(json), kSpaceMark);
}

Result<SentencePieceModel> model_of(const SortedJson& json, const FilesBeside& beside) {
  const Result<const SortedJson*> bpe = bpe_of(json);
  LOOM_TRY(bpe.status());
  if (is_unset(**bpe, "byte_fallback"))
    return fail(Code::unsupported,
                "\"byte_fallback\" of the model is not set, must be true for a SentencePiece BPE");
  SentencePieceModel model;
  const Result<SpacePrefix> prefix = read_marks(json);
  LOOM_TRY(prefix.status());
  model.prefix = *prefix;
  LOOM_TRY(beside.check_same("add_prefix_space", model.prefix != SpacePrefix::never));
  const Result<bool> strip = read_decoder(json.value("decoder", SortedJson()));
  LOOM_TRY(strip.status());
  model.strip = *strip;
  const SortedJson unknown = (*bpe)->value("unk_token", SortedJson());
  if (unknown.is_string()) model.unknown = unknown.get<std::string>();
  LOOM_TRY(read_pairs(
      json, **bpe, beside, [](const std::string& spelling) { return std::optional(spelling); }, model));
  return model;
}

Json replace(const char* what, const char* by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}

/// What read_marks() and read_decoder() read.
void write_pipeline(const SentencePieceModel& model, Json& json) {
  if (model.prefix == SpacePrefix::normalized) {
    json["normalizer"] = {{"type", "Sequence"},
                          {"normalizers", Json::array({{{"type", "Prepend"}, {"prepend", kSpaceMark}},
                                                       replace(" ", kSpaceMark)})}};
  } else {
    json["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", kSpaceMark},
                             {"prepend_scheme", kSchemes[static_cast<size_t>(model.prefix)].second},
                             {"split", false}};
  }
  Json steps = Json::array({replace(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (model.strip) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
}

}  // namespace

Result<SentencePieceModel> read_sentencepiece(const std::string& path) {
  const Result<SortedJson> json = format::read_sorted_json(path);
  if (!json.ok()) return json.status();
  const Result<FilesBeside> beside = FilesBeside::read(folder_of(path));
  LOOM_TRY(beside.status());
  Result<SentencePieceModel> model = model_of(*json, *beside);
  if (!model.ok()) return model.status().in(path);
  return model;
}

Json sentencepiece_json(const SentencePieceModel& model, const Json& vocabulary, const Json& merges) {
  Json json = pairs_json(model, vocabulary, merges, false);
  write_pipeline(model, json);
  json["model"]["byte_fallback"] = true;
  if (!model.unknown.empty()) {
    json["model"]["unk_token"] = model.unknown;
    json["model"]["fuse_unk"] = true;
  }
  return json;
}

}  // namespace loom::text
