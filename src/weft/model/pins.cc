#include "model/pins.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace weft::model {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

/// Lower case, and without what people put between words.
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != '_' && c != '-' && c != ' ')
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

bool any_has(std::string_view algorithm) {
  const auto all = plan::algorithms();
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == algorithm; });
}

std::string all_names() {
  std::vector<std::string_view> names;
  for (const auto& algorithm : plan::algorithms()) {
    if (std::find(names.begin(), names.end(), algorithm.name) == names.end()) names.push_back(algorithm.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Status parse_range(std::string_view text, Pin& pin) {
  const size_t dash = text.find('-');
  const std::string_view from = text.substr(0, dash);
  const std::string_view to = dash == std::string_view::npos ? from : text.substr(dash + 1);
  if (from.empty() && to.empty()) {
    return fail(Code::invalid_argument, "the size range \"{}\" is empty; must be like 4K-1M, 4K- or -1M",
                text);
  }
  if (!from.empty()) {
    const Result<uint64_t> bytes = parse_bytes(from);
    if (!bytes.ok()) return bytes.status();
    pin.from_bytes = *bytes;
  }
  if (!to.empty()) {
    const Result<uint64_t> bytes = parse_bytes(to);
    if (!bytes.ok()) return bytes.status();
    pin.to_bytes = *bytes;
  }
  if (pin.from_bytes <= pin.to_bytes) return {};
  return fail(Code::invalid_argument, "the size range \"{}\" ends before it begins", text);
}

Result<Pin> parse_pin(std::string_view text) {
  Pin pin;
  pin.text = text;
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return fail(Code::invalid_argument, "has no \"=\"; must be like allreduce=ring or allgather@4K-1M=!ring");
  }
  std::string_view what = trim(text.substr(0, equals)), algorithm = trim(text.substr(equals + 1));
  if (const size_t at = what.find('@'); at != std::string_view::npos) {
    WEFT_TRY(parse_range(trim(what.substr(at + 1)), pin));
    what = trim(what.substr(0, at));
  }
  if (what != "*") {
    const Result<plan::Collective> collective = parse_collective(what);
    if (!collective.ok()) return collective.status();
    pin.collective = *collective;
  }
  if (algorithm.starts_with('!')) {
    pin.ban = true;
    algorithm = trim(algorithm.substr(1));
  }
  pin.algorithm = algorithm;
  if (!pin.collective && !any_has(algorithm)) {
    return fail(Code::invalid_argument, "there is no algorithm \"{}\"; there are: {}", algorithm,
                all_names());
  }
  if (pin.collective && plan::find_algorithm(*pin.collective, algorithm) == nullptr) {
    return fail(Code::invalid_argument, "{} has no algorithm \"{}\"; it has: {}",
                plan::name_of(*pin.collective), algorithm, algorithm_names(*pin.collective));
  }
  return pin;
}

}  // namespace

Result<Pins> parse_pins(std::string_view text) {
  Pins pins;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view rule = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (rule.empty()) continue;
    Result<Pin> pin = parse_pin(rule);
    if (!pin.ok()) return fail(Code::invalid_setting, "WEFT_ALGO: \"{}\": {}", rule, pin.status().message());
    pins.rules.push_back(pin.take());
  }
  return pins;
}

Result<plan::Collective> parse_collective(std::string_view text) {
  std::vector<std::string> names;
  for (int i = 0; i < plan::kCollectives; ++i) {
    const auto collective = static_cast<plan::Collective>(i);
    names.push_back(plain(plan::name_of(collective)));
    if (names.back() == plain(text)) return collective;
  }
  return fail(Code::invalid_argument, "there is no collective \"{}\"; there are: {}", text,
              fmt::join(names, ", "));
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const Status wrong = fail(Code::invalid_argument,
                            "\"{}\" is no size; must be a number of bytes, or with K, M or G: 4K, 1M", text);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return wrong;
  std::string unit = plain({end, text.data() + text.size()});
  if (unit.ends_with("b")) unit.pop_back();
  if (unit.size() == 2 && unit[1] == 'i') unit.pop_back();
  const int shift = unit.empty() ? 0 : unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : -1;
  if (shift < 0 || number > (UINT64_MAX >> shift)) return wrong;
  return number << shift;
}

std::string bytes_text(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, units[unit]);
}

std::string algorithm_names(plan::Collective collective) {
  std::vector<std::string_view> names;
  for (const auto& algorithm : plan::algorithms()) {
    if (algorithm.collective == collective) names.push_back(algorithm.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace weft::model
