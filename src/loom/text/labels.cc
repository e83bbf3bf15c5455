#include "text/labels.h"

#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

namespace loom::text {
namespace {

/// A sentence names so many classes.
constexpr size_t kNamed = 20;

/// The value of a whole number as it is written without leading zeros; nothing for other texts.
std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end || fmt::format("{}", value) != text) return std::nullopt;
  return value;
}

std::optional<Token> place_of(const std::string& label, const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), label);
  if (found == names.end()) return std::nullopt;
  return static_cast<Token>(found - names.begin());
}

bool same_but_for_case(const std::string& a, const std::string& b) {
  return ::strcasecmp(a.c_str(), b.c_str()) == 0;
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  if (names.size() <= kNamed) return fmt::format("\"{}\"", fmt::join(names, "\", \""));
  return fmt::format("\"{}\" and {} more", fmt::join(names.begin(), names.begin() + kNamed, "\", \""),
                     names.size() - kNamed);
}

std::vector<std::string> unnamed_classes(int64_t count) {
  std::vector<std::string> names;
  for (int64_t label = 0; label < count; ++label) names.push_back(fmt::format("LABEL_{}", label));
  return names;
}

bool are_classes(const std::vector<std::string>& labels, const std::vector<std::string>& classes) {
  if (labels.size() > classes.size()) return false;
  if (std::equal(labels.begin(), labels.end(), classes.begin())) return true;
  for (size_t label = 0; label < labels.size(); ++label)
    if (labels[label] != fmt::format("{}", label)) return false;
  // A number that is the name of another class is that class.
  for (size_t number = 0; number < classes.size(); ++number) {
    const std::optional<int64_t> other = whole_number(classes[number]);
    if (other && *other >= 0 && *other < static_cast<int64_t>(labels.size()) &&
        *other != static_cast<int64_t>(number))
      return false;
  }
  return true;
}

/// Without a model.
void Labels::take_own(const std::map<std::string, std::string>& places) {
  for (const auto& [label, place] : places) names_.push_back(label);
  const auto is_whole = [](const std::string& label) { return whole_number(label).has_value(); };
  if (std::all_of(names_.begin(), names_.end(), is_whole))
    std::sort(names_.begin(), names_.end(),
              [](const std::string& a, const std::string& b) { return *whole_number(a) < *whole_number(b); });
  for (size_t number = 0; number < names_.size(); ++number)
    numbers_[names_[number]] = static_cast<Token>(number);
}

Status Labels::take_classes(const std::map<std::string, std::string>& places, const ModelClasses& classes) {
  const std::vector<std::string>& names = classes.names;
  const auto id_of = [&](const std::string& label) -> std::optional<Token> {
    const std::optional<int64_t> id = whole_number(label);
    if (!id || *id < 0 || *id >= static_cast<int64_t>(names.size())) return std::nullopt;
    return static_cast<Token>(*id);
  };
  const auto every = [&](auto&& is) {
    return std::all_of(places.begin(), places.end(), [&](const auto& label) { return is(label.first); });
  };
  const bool by_name = every([&](const std::string& label) { return place_of(label, names).has_value(); });
  const bool by_id = every([&](const std::string& label) { return id_of(label).has_value(); });
  for (const auto& each : places) {
    const std::string& label = each.first;
    const std::optional<Token> name = place_of(label, names), id = id_of(label);
    if (by_name && by_id && name != id)
      return fail(
          Code::invalid_argument,
          "{}: the label \"{}\" is class {} of the model {} by its name and class {} by its number: must be "
          "one of both; labels by all names, or by numbers that are no names, can be told apart",
          each.second, label, *name, classes.model, *id);
    if (by_name || by_id) {
      numbers_[label] = by_name ? *name : *id;
      continue;
    }
    const bool number = whole_number(label).has_value();
    const bool near = std::any_of(names.begin(), names.end(),
                                  [&](const std::string& other) { return same_but_for_case(label, other); });
    // One of the model's, or one that looks so: then the others are mistakes.
    if (!number && !near) continue;
    const auto wrong = std::find_if(places.begin(), places.end(), [&](const auto& other) {
      return number ? !id_of(other.first) : !place_of(other.first, names);
    });
    const auto& [text, where] = *wrong;
    if (place_of(text, names) || id_of(text))
      return fail(
          Code::invalid_argument,
          "{}: the label \"{}\", beside \"{}\", is one of the classes of the model {}, but the labels "
          "are partly names and partly numbers: must be one of both",
          where, text, label, classes.model);
    return fail(
        Code::invalid_argument,
        "{}: the label \"{}\" is no class of the model {}, which has {}: must be one of these or a number of "
        "0 to {}; for classes of its own, give --tokenizer a folder with the tokenizer's files alone",
        where, text, classes.model, listed(names), names.size() - 1);
  }
  if (by_name || by_id) names_ = names;
  return {};
}

Result<Labels> Labels::make(const std::map<std::string, std::string>& places, const ModelClasses& classes) {
  Labels labels;
  if (!classes.names.empty()) LOOM_TRY(labels.take_classes(places, classes));
  if (labels.names_.empty()) {
    labels.take_own(places);
    if (!classes.names.empty())
      labels.note_ = fmt::format(
          "none of the labels is a class of the model {}, which has {}: they are numbered by themselves, for "
          "a model "
          "with classes of its own",
          classes.model, listed(classes.names));
  }
  if (labels.names_.size() < 2)
    return fail(Code::invalid_argument, "the texts have {} label, must have at least two to tell apart",
                labels.names_.size());
  return labels;
}

}  // namespace loom::text
