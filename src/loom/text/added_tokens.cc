#include "text/added_tokens.h"

#include <algorithm>

#include "text/words.h"

namespace loom::text {

Status AddedTokens::add(const AddedToken& token) {
  if (token.content.empty()) return fail(Code::invalid_data, "added token {} is empty", token.id);
  std::vector<AddedToken>& list = starting_[static_cast<unsigned char>(token.content[0])];
  const auto shorter = std::find_if(list.begin(), list.end(), [&](const AddedToken& other) {
    return other.content.size() < token.content.size();
  });
  list.insert(shorter, token);
  none_ = false;
  return {};
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t at = none_ ? text.size() : from; at < text.size(); ++at) {
    for (const AddedToken& token : starting_[static_cast<unsigned char>(text[at])]) {
      if (!text.substr(at).starts_with(token.content)) continue;
      Match match{at, at + token.content.size(), token.id};
      if (token.left_strip) match.begin -= trailing_space(text.substr(from, at - from));
      if (token.right_strip) match.end += leading_space(text.substr(match.end));
      return match;
    }
  }
  return std::nullopt;
}

bool AddedTokens::begins_at(std::string_view text, size_t at) const {
  if (at == text.size()) return false;
  const std::vector<AddedToken>& list = starting_[static_cast<unsigned char>(text[at])];
  return std::any_of(list.begin(), list.end(),
                     [&](const AddedToken& token) { return text.substr(at).starts_with(token.content); });
}

}  // namespace loom::text
