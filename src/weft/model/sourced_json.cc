#include "model/sourced_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/nearest_name.h"

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
      return fail(Code::invalid_argument, "{}: unknown key {}; beside \"{}\" there is only \"{}\"", what,
                  Json(join(path, key)).dump(), kValue, kSource);
    }
    Json value = std::move(json[kValue]);
    json = std::move(value);
    return {};
  }
  for (const auto& [key, inner] : json.items()) WEFT_TRY(strip(inner, what, join(path, key)));
  return {};
}

/// The beginning of a text. Control characters and bytes beyond ASCII become dots: a NUL would end the
/// sentence.
std::string excerpt(const std::string& text) {
  constexpr size_t kMost = 60;
  std::string begin = text.substr(0, kMost);
  std::replace_if(
      begin.begin(), begin.end(), [](char c) { return c < ' ' || c > '~'; }, '.');
  return text.size() > kMost ? begin + "…" : begin;
}

/// Where the byte is that a parser stopped at; it counts from 1, and the end is one beyond the last.
std::string place_in(const std::string& text, size_t byte) {
  const std::string_view before = std::string_view(text).substr(0, std::max<size_t>(byte, 1) - 1);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 = 0
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     before.size() - line_begin + 1);
}

/// Watches the parser for what JSON allows and no description may have: keys twice, and too many levels.
class Watch {
 public:
  /// The parser calls it for each event. It returns false once something is wrong.
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (!complaint_.empty()) return false;
    if (depth > kDeepest) complaint_ = fmt::format("this JSON is nested more than {} levels deep", kDeepest);
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) take(parsed.get_ref<const std::string&>());
    return complaint_.empty();
  }
  const std::string& complaint() const { return complaint_; }

 private:
  void take(const std::string& key) {
    if (std::find(keys_.back().begin(), keys_.back().end(), key) == keys_.back().end())
      return keys_.back().push_back(key);
    std::string path;
    for (size_t i = 0; i + 1 < keys_.size(); ++i) path = join(path, keys_[i].back());
    complaint_ = fmt::format("the key {} is there twice, must be there once", Json(join(path, key)).dump());
  }

  std::vector<std::vector<std::string>> keys_;  // of the objects around, those so far
  std::string complaint_;
};

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

Result<Json> parse_object(const std::string& text, const std::string& what) {
  if (text.empty()) return fail(Code::invalid_argument, "{}: this is empty, must be a JSON object", what);
  // The parser takes a NUL for the end, and would not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    return fail(Code::invalid_argument, "{}: this is not a JSON object: {} (byte {} is a NUL, at {})", what,
                excerpt(text), nul, place_in(text, nul + 1));
  }
  Watch watch;
  Json json;
  std::string wrong;
  try {
    json = Json::parse(text, std::ref(watch));
    if (!json.is_object()) wrong = fmt::format("this is not a JSON object: {}", excerpt(text));
  } catch (const Json::parse_error& error) {
    wrong = fmt::format("this is not a JSON object: {} ({} at {})", excerpt(text),
                        error.byte > text.size() ? "it ends too early," : "it is wrong",
                        place_in(text, error.byte));
  } catch (const Json::exception& error) {  // a number that no double holds
    wrong = fmt::format("this is not a JSON object: {} ({})", excerpt(text), error.what());
  }
  if (!watch.complaint().empty()) wrong = watch.complaint();
  if (!wrong.empty()) return fail(Code::invalid_argument, "{}: {}", what, wrong);
  return json;
}

Status unknown_key(const std::string& what, const std::string& key, const std::vector<std::string>& known) {
  const std::string_view nearest = nearest_name(key, {known.begin(), known.end()}, key.size() / 3);
  return fail(Code::invalid_argument, "{}: unknown key {}; {}known are {}", what, Json(key).dump(),
              nearest.empty() ? "" : fmt::format("did you mean \"{}\"? ", nearest), fmt::join(known, ", "));
}

Status check_keys(const Json& object, const std::string& what, const std::string& path,
                  const std::vector<std::string>& known) {
  std::vector<std::string> names;
  for (const std::string& key : known) names.push_back(join(path, key));
  for (const auto& [key, value] : object.items()) {
    const std::string name = join(path, key);
    if (std::find(names.begin(), names.end(), name) == names.end()) return unknown_key(what, name, names);
  }
  return {};
}

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

bool is_name(const Json& json) {
  if (!json.is_string()) return false;
  const auto& text = json.get_ref<const std::string&>();
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

Result<std::vector<std::string>> numbers_without_source(const std::string& text) {
  const Result<Json> json = parse_object(text, "cluster");
  if (!json.ok()) return json.status();
  std::vector<std::string> found;
  for (const auto& [key, inner] : json->items()) find_sourceless(inner, key, found);
  return found;
}

}  // namespace weft::model
