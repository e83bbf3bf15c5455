#include "format/json_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <type_traits>

#include "base/file.h"

namespace loom::format {
namespace {

constexpr int kDeepest = 100;

/// A piece of JSON for a sentence: its start, if it is long.
std::string excerpt(const Json& json) {
  constexpr size_t kMost = 60;
  if (json.is_structured() && json.size() > kMost) {
    return fmt::format("{} of {} values", json.is_array() ? "a list" : "an object", json.size());
  }
  std::string text =
      json.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII: it may be cut anywhere
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

/// Ends the parsing of a text that JSON allows and no file of ours should be. The rest of the text may be
/// long, and its tree takes many times its bytes.
struct Refused {
  std::string why;
};

/// Looks over the parser's shoulder for such a text.
class Watch {
 public:
  template <typename J>
  bool operator()(int depth, typename J::parse_event_t event, const J& parsed) {
    using Event = typename J::parse_event_t;
    if (depth > kDeepest) throw Refused{fmt::format("is nested deeper than {} levels", kDeepest)};
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const std::string& key = parsed.template get_ref<const std::string&>();
      if (!keys_.back().insert(key).second)
        throw Refused{fmt::format("has the key \"{}\" twice in one object", key)};
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

template <typename J>
Result<J> parse(std::string_view text) {
  if (text.empty()) return fail(Code::invalid_data, "bad JSON: it is empty");
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    return fail(
        Code::invalid_data,
        "bad JSON: it begins with the byte order mark of UTF-16, must be UTF-8: `iconv -f UTF-16 -t UTF-8` "
        "converts it");
  // The parser takes a NUL for the end, and would not look at what follows.
  if (const size_t nul = text.find('\0'); nul != text.npos)
    return fail(Code::invalid_data, "bad JSON: byte {} is a NUL", nul);
  Watch watch;
  const auto callback = [&](int depth, typename J::parse_event_t event, J& parsed) {
    return watch.operator()<J>(depth, event, parsed);
  };
  try {
    return J::parse(text.begin(), text.end(), callback);
  } catch (const Refused& refused) {
    return fail(Code::invalid_data, "JSON {}", refused.why);
  } catch (const typename J::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: …"
    const std::string what = error.what();
    const size_t start = what.find("] ");
    return fail(Code::invalid_data, "bad JSON: {}",
                start == std::string::npos ? what : what.substr(start + 2));
  }
}

template <typename J>
Result<J> read(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.status();
  Result<J> json = parse<J>(*text);
  if (!json.ok()) return json.status().in(path);
  return json;
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
const char* type_text() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_integral_v<T>)
    return std::is_unsigned_v<T> ? "a whole number, not negative" : "a whole number";
  if constexpr (std::is_floating_point_v<T>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a list of texts";
  return "a list of whole numbers";
}

template <typename T>
bool holds(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_boolean();
  } else if constexpr (std::is_integral_v<T>) {
    if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
    return value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  } else if constexpr (std::is_floating_point_v<T>) {
    return value.is_number() && std::abs(value.get<double>()) <= std::numeric_limits<T>::max();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string();
  } else {
    return value.is_array() && std::all_of(value.begin(), value.end(), holds<typename T::value_type>);
  }
}

/// Levenshtein's distance: letters put in, left out or exchanged.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

Status no_such_key(const Json& object, const std::string& key, const char* type) {
  std::vector<std::string> known;
  for (const auto& [name, value] : object.items()) known.push_back(name);
  const std::string nearest = nearest_name(key, known);
  const std::string hint =
      nearest.empty() || nearest == key ? "" : fmt::format(" (there is \"{}\")", nearest);
  return fail(Code::invalid_data, "\"{}\" is missing, must be {}{}", key, type, hint);
}

}  // namespace

Result<Json> parse_json(std::string_view text) { return parse<Json>(text); }
Result<Json> read_json(const std::string& path) { return read<Json>(path); }
Result<SortedJson> read_sorted_json(const std::string& path) { return read<SortedJson>(path); }

double shortest(float value) {
  std::array<char, 32> digits{};
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  double number = 0;
  std::from_chars(digits.data(), end, number);
  return number;
}

Status write_json(const std::string& path, const Json& json) {
  std::string text;
  try {
    text = json.dump(2) + "\n";
  } catch (const Json::exception&) {
    return fail(Code::invalid_argument, "cannot write {}: a text in it is not UTF-8", path);
  }
  return write_file(path, text);
}

Result<Json> read_config(const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  Result<Json> config = read_json(path);
  if (!config.ok()) return config.status();
  const Result<std::string> type = required<std::string>(*config, "model_type");
  if (!type.ok()) return type.status().in(path);
  return config;
}

Status write_config(const std::string& folder, const Json& config) {
  return write_json(join_path(folder, "config.json"), config);
}

template <typename T>
Result<T> required(const Json& object, const std::string& key) {
  if (!object.is_object()) {
    return fail(Code::invalid_data, "{}, must be an object with \"{}\"", excerpt(object), key);
  }
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return no_such_key(object, key, type_text<T>());
  if (!holds<T>(*found)) {
    return fail(Code::invalid_data, "\"{}\" is {}, must be {}", key, excerpt(*found), type_text<T>());
  }
  return found->template get<T>();
}

template <typename T>
Result<T> value_or(const Json& object, const std::string& key, T otherwise) {
  if (object.is_object()) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return otherwise;
  }
  return required<T>(object, key);
}

#define LOOM_JSON_TYPE(T)                                          \
  template Result<T> required<T>(const Json&, const std::string&); \
  template Result<T> value_or<T>(const Json&, const std::string&, T);
LOOM_JSON_TYPE(bool)
LOOM_JSON_TYPE(int)
LOOM_JSON_TYPE(int64_t)
LOOM_JSON_TYPE(uint64_t)
LOOM_JSON_TYPE(float)
LOOM_JSON_TYPE(double)
LOOM_JSON_TYPE(std::string)
LOOM_JSON_TYPE(std::vector<int64_t>)
LOOM_JSON_TYPE(std::vector<std::string>)
#undef LOOM_JSON_TYPE

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = std::max<size_t>(name.size() / 3, 1) + 1;
  for (const std::string& candidate : known) {
    // The lengths alone may say enough; a long list of long names costs nothing then.
    const size_t apart =
        candidate.size() > name.size() ? candidate.size() - name.size() : name.size() - candidate.size();
    if (apart >= least) continue;
    if (const size_t wrong = distance(name, candidate); wrong < least) {
      least = wrong;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace loom::format
