#include "train/checkpointing.h"

#include <charconv>
#include <string_view>

namespace loom::train {
namespace {

std::optional<int64_t> number(std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < least || value > Checkpointing::kContiguous) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Checkpointing> checkpointing_from(const std::string& text) {
  constexpr std::string_view kGroup = "group_", kEvery = "every_";
  if (text == "none") return Checkpointing{0};
  if (text == "each") return Checkpointing{1};
  if (text == "contiguous") return Checkpointing{Checkpointing::kContiguous};
  if (const auto group = number(text, 0)) return Checkpointing{*group};
  if (text.starts_with(kGroup))
    if (const auto group = number(std::string_view(text).substr(kGroup.size()), 1))
      return Checkpointing{*group};
  if (text.starts_with(kEvery))
    if (const auto every = number(std::string_view(text).substr(kEvery.size()), 1))
      return Checkpointing{1, *every};
  return std::nullopt;
}

std::string to_string(const Checkpointing& checkpointing) {
  if (checkpointing.group == 0) return "none";
  if (checkpointing.every > 1) return "every_" + std::to_string(checkpointing.every);
  if (checkpointing.group == 1) return "each";
  if (checkpointing.group == Checkpointing::kContiguous) return "contiguous";
  return "group_" + std::to_string(checkpointing.group);
}

}  // namespace loom::train
