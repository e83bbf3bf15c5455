#include "text/template_json.h"

#include "text/tokenizer_json.h"

namespace loom::text {
namespace {

using format::Json;
using format::SortedJson;

Result<Token> number_of(const SortedJson& json) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > uint64_t{INT32_MAX})
    return fail(Code::invalid_data, "a token of \"post_processor\" is {}, must be a number in [0, 2^31)",
                quote(json));
  return json.get<Token>();
}

/// The token of ["</s>", 2].
Result<Token> number_in(const SortedJson& json, const char* key) {
  const SortedJson pair = json.value(key, SortedJson());
  if (!pair.is_array() || pair.size() != 2)
    return fail(Code::invalid_data, "\"{}\" of \"post_processor\" is {}, must be a token and its number", key,
                quote(pair));
  return number_of(pair[1]);
}

/// A list of {"SpecialToken": {"id": name}} with one {"Sequence": {"id": "A"}} among them.
Result<SequenceTemplate> template_of_list(const SortedJson& json) {
  const SortedJson single = json.value("single", SortedJson()),
                   specials = json.value("special_tokens", SortedJson());
  SequenceTemplate around;
  int texts = 0;
  if (!single.is_array() || !specials.is_object())
    return fail(Code::invalid_data, "\"post_processor\" must have \"single\" and \"special_tokens\"");
  for (const SortedJson& item : single) {
    const SortedJson part = item.is_object() && item.size() == 1 ? item.begin().value() : SortedJson();
    const SortedJson name = part.is_object() ? part.value("id", SortedJson()) : SortedJson();
    if (name.is_string() && item.contains("Sequence")) {
      ++texts;
      continue;
    }
    const bool known =
        name.is_string() && item.contains("SpecialToken") && specials.contains(name.get<std::string>());
    const SortedJson token = known ? specials[name.get<std::string>()] : SortedJson();
    const SortedJson ids = token.is_object() ? token.value("ids", SortedJson()) : SortedJson();
    if (!ids.is_array())
      return fail(Code::invalid_data,
                  "\"post_processor\" has {}, must be a text or a special token of its own", quote(item));
    for (const SortedJson& id : ids) {
      const Result<Token> number = number_of(id);
      LOOM_TRY(number.status());
      (texts == 0 ? around.before : around.after).push_back(*number);
    }
  }
  if (texts != 1)
    return fail(Code::unsupported, "\"post_processor\" repeats a text {} times, must be once", texts);
  return around;
}

/// One after the other: what a later one adds stands outside.
Result<std::optional<SequenceTemplate>> template_of_sequence(const SortedJson& steps) {
  if (!steps.is_array())
    return fail(Code::invalid_data, "\"processors\" is {}, must be a list", quote(steps));
  std::optional<SequenceTemplate> all;
  for (const SortedJson& step : steps) {
    Result<std::optional<SequenceTemplate>> one = template_of(step);
    LOOM_TRY(one.status());
    if (!*one) continue;
    if (!all) all.emplace();
    all->before.insert(all->before.begin(), (*one)->before.begin(), (*one)->before.end());
    all->after.insert(all->after.end(), (*one)->after.begin(), (*one)->after.end());
  }
  return all;
}

}  // namespace

Result<std::optional<SequenceTemplate>> template_of(const SortedJson& json) {
  if (json.is_null()) return std::optional<SequenceTemplate>();
  if (is_type(json, "ByteLevel")) return std::optional(SequenceTemplate());
  if (is_type(json, "Sequence")) return template_of_sequence(json.value("processors", SortedJson()));
  if (is_type(json, "TemplateProcessing")) {
    Result<SequenceTemplate> around = template_of_list(json);
    LOOM_TRY(around.status());
    return std::optional(around.take());
  }
  if (!is_type(json, "RobertaProcessing") && !is_type(json, "BertProcessing"))
    return fail(Code::unsupported,
                "\"post_processor\" is {}, must be TemplateProcessing, BertProcessing, RobertaProcessing or "
                "ByteLevel",
                quote(json));
  const Result<Token> begin = number_in(json, "cls"), end = number_in(json, "sep");
  LOOM_TRY(begin.status());
  LOOM_TRY(end.status());
  return std::optional(SequenceTemplate{{*begin}, {*end}});
}

Json post_processor_json(const SequenceTemplate& around, const std::vector<std::string>& names,
                         bool byte_level) {
  const auto name = [&](Token token) { return names[static_cast<size_t>(token)]; };
  const bool one_each = around.before.size() == 1 && around.after.size() == 1;
  if (byte_level && around.before.empty() && around.after.empty())
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  if (byte_level && one_each)
    return {{"type", "RobertaProcessing"},
            {"sep", Json::array({name(around.after[0]), around.after[0]})},
            {"cls", Json::array({name(around.before[0]), around.before[0]})},
            {"trim_offsets", true},
            {"add_prefix_space", false}};
  Json single = Json::array(), pair = Json::array(), specials = Json::object();
  const auto add_specials = [&](const std::vector<Token>& tokens, int type, Json& list) {
    for (const Token token : tokens) {
      list.push_back({{"SpecialToken", {{"id", name(token)}, {"type_id", type}}}});
      specials[name(token)] = {{"id", name(token)}, {"ids", {token}}, {"tokens", {name(token)}}};
    }
  };
  const auto add_text = [&](const char* id, int type, Json& list) {
    list.push_back({{"Sequence", {{"id", id}, {"type_id", type}}}});
  };
  for (Json* const list : {&single, &pair}) {
    add_specials(around.before, 0, *list);
    add_text("A", 0, *list);
    add_specials(around.after, 0, *list);
  }
  if (!one_each) add_specials(around.before, 1, pair);
  add_text("B", 1, pair);
  add_specials(around.after, 1, pair);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
}

}  // namespace loom::text
