#include "model/sourced_json.h"

#include <algorithm>
#include <cmath>

namespace weft::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepest = 64;  // levels of objects and arrays: what reads them calls itself for each
constexpr char kValue[] = "value", kSource[] = "source";

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

Status strip(Json& json, const std::string& what, const std::string& path) {
  if (json.is_array()) {
    for (size_t i = 0; i < json.size(); ++i) WEFT_TRY(strip(json[i], what, fmt::format("{}[{}]", path, i)));
  }
  if (!json.is_object()) return {};
  if (const auto source = json.find(kSource); source != json.end()) {
    if (!source->is_string()) {
      return fail(Code::invalid_argument, "{}: {} is {}, must be a string", what, join(path, kSource),
                  source->dump());
    }
    json.erase(kSource);
  }
  if (json.contains(kValue)) {
    for (const auto& [key, ignored] : json.items()) {
      if (key == kValue) continue;
      return fail(Code::invalid_argument, "{}: unknown key \"{}\"; beside \"{}\" there is only \"{}\"", what,
                  join(path, key), kValue, kSource);
    }
    Json value = std::move(json[kValue]);
    json = std::move(value);
    return {};
  }
  for (const auto& [key, inner] : json.items()) WEFT_TRY(strip(inner, what, join(path, key)));
  return {};
}

std::string excerpt(const std::string& text) { return text.size() > 60 ? text.substr(0, 60) + "…" : text; }

/// Where the byte is that a parser stopped at; it counts from 1, and the end is one beyond the last.
std::string place_in(const std::string& text, size_t byte) {
  const std::string_view before = std::string_view(text).substr(0, std::max<size_t>(byte, 1) - 1);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 = 0
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     before.size() - line_begin + 1);
}

Result<Json> parse_object(const std::string& text, const std::string& what) {
  bool too_deep = false;
  const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kDeepest;
    return !too_deep;
  };
  Json json;
  try {
    json = Json::parse(text, bounded);
  } catch (const Json::parse_error& error) {
    if (!too_deep) {
      return fail(Code::invalid_argument, "{}: this is not a JSON object: {} ({} at {})", what, excerpt(text),
                  error.byte > text.size() ? "it ends too early," : "it is wrong",
                  place_in(text, error.byte));
    }
  } catch (const Json::exception& error) {  // a number that no double holds
    return fail(Code::invalid_argument, "{}: this is not a JSON object: {} ({})", what, excerpt(text),
                error.what());
  }
  if (too_deep) {
    return fail(Code::invalid_argument, "{}: this JSON is nested more than {} levels deep", what, kDeepest);
  }
  if (!json.is_object()) {
    return fail(Code::invalid_argument, "{}: this is not a JSON object: {}", what, excerpt(text));
  }
  return json;
}

/// Whether an object says where it is from, in words.
bool has_source(const Json& json) {
  const auto source = json.find(kSource);
  return source != json.end() && source->is_string() &&
         source->get_ref<const std::string&>().find_first_not_of(" \t\n") != std::string::npos;
}

void find_sourceless(const Json& json, const std::string& path, std::vector<std::string>& found) {
  if (json.is_number()) return found.push_back(path);
  if (!json.is_structured() || (json.is_object() && has_source(json))) return;
  for (const auto& [key, inner] : json.items()) find_sourceless(inner, join(path, key), found);
}

}  // namespace

Result<Json> parse_sourced(const std::string& text, const std::string& what) {
  Result<Json> json = parse_object(text, what);
  if (!json.ok()) return json;
  if (json->contains(kValue)) {
    return fail(Code::invalid_argument, "{}: unknown key \"{}\"", what, kValue);
  }
  WEFT_TRY(strip(*json, what, ""));
  return json;
}

bool is_whole(const Json& json) {
  return json.is_number_integer() ||
         (json.is_number() && std::trunc(json.get<double>()) == json.get<double>());
}

Result<std::vector<std::string>> numbers_without_source(const std::string& text) {
  const Result<Json> json = parse_object(text, "cluster");
  if (!json.ok()) return json.status();
  std::vector<std::string> found;
  for (const auto& [key, inner] : json->items()) find_sourceless(inner, key, found);
  return found;
}

}  // namespace weft::model
