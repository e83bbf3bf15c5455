#include "text/added_tokens.h"

#include <algorithm>

#include "text/words.h"

namespace loom::text {

Status AddedTokens::add(const AddedToken& token) {
  if (token.content.empty()) return fail(Code::invalid_data, "added token {} is empty", token.id);
  auto& [same, tokens] = starting_[static_cast<unsigned char>(token.content[0])];
  if (tokens.empty()) same = token.content;
  same.resize(static_cast<size_t>(std::ranges::mismatch(same, token.content).in1 - same.begin()));
  const auto shorter = std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& other) {
    return other.content.size() < token.content.size();
  });
  tokens.insert(shorter, token);
  none_ = false;
  return {};
}

const AddedToken* AddedTokens::token_at(std::string_view text, size_t at) const {
  const auto& [same, tokens] = starting_[static_cast<unsigned char>(text[at])];
  const std::string_view rest = text.substr(at);
  if (tokens.empty() || !rest.starts_with(same)) return nullptr;
  const auto found =
      std::ranges::find_if(tokens, [&](const AddedToken& token) { return rest.starts_with(token.content); });
  return found == tokens.end() ? nullptr : &*found;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t at = none_ ? text.size() : from; at < text.size(); ++at) {
    const AddedToken* const token = token_at(text, at);
    if (token == nullptr) continue;
    Match match{at, at + token->content.size(), token->id};
    if (token->left_strip) match.begin -= trailing_space(text.substr(from, at - from));
    if (token->right_strip) match.end += leading_space(text.substr(match.end));
    return match;
  }
  return std::nullopt;
}

bool AddedTokens::begins_at(std::string_view text, size_t at) const {
  return at < text.size() && token_at(text, at) != nullptr;
}

}  // namespace loom::text
