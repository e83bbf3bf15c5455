#include "text/pair_tokenizer.h"

#include <algorithm>
#include <limits>

#include "base/hash.h"

namespace loom::text {

using format::Json;

Status PairTokenizer::index_spellings(std::string_view kind, std::vector<std::string> spellings) {
  const std::vector<std::string>& vocabulary = model().vocabulary;
  if (vocabulary.size() > static_cast<size_t>(std::numeric_limits<Token>::max()))
    return fail(Code::invalid_data, "{} tokens, must be fewer than 2^31", vocabulary.size());
  spellings_ = std::move(spellings);
  for (const AddedToken& added : model().added) {
    if (added.id < 0 || added.id >= vocabulary_size() ||
        vocabulary[static_cast<size_t>(added.id)] != added.content) {
      return fail(Code::invalid_data, "the added token \"{}\" has the number {}, which is another token's",
                  added.content, added.id);
    }
    spellings_[static_cast<size_t>(added.id)] = added.content;
  }
  Hash64 hash;
  hash.add(kind);
  for (size_t id = 0; id < spellings_.size(); ++id) {
    hash.add(spellings_[id]);
    if (spellings_[id].empty()) continue;
    const auto [other, added] = token_spelled_.emplace(spellings_[id], static_cast<Token>(id));
    if (!added) {
      return fail(Code::invalid_data, "the tokens {} and {} are both \"{}\"", other->second, id,
                  spellings_[id]);
    }
  }
  hash_ = hash.value();
  return {};
}

Status PairTokenizer::index_merges() {
  Hash64 hash;
  hash.add(hash_);
  const std::vector<std::pair<Token, Token>>& merges = model().merges;
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    if (left < 0 || right < 0 || left >= vocabulary_size() || right >= vocabulary_size()) {
      return fail(Code::invalid_data, "merge {} is of tokens {} and {}, must be in [0, {})", rank, left,
                  right, vocabulary_size());
    }
    const std::string result = spellings_[static_cast<size_t>(left)] + spellings_[static_cast<size_t>(right)];
    const std::optional<Token> token = spelled(result);
    if (!token) {
      return fail(Code::invalid_data, "merge {} makes \"{}\", which is no token of the vocabulary", rank,
                  result);
    }
    merges_.add(left, right, {static_cast<int32_t>(rank), *token});
    hash.add(PairMerges::key(left, right));
  }
  hash_ = hash.value();
  return {};
}

Status PairTokenizer::index_added(uint64_t settings,
                                  const std::function<std::string(const std::string&)>& normalized) {
  Hash64 hash;
  hash.add(hash_);
  hash.add(settings);
  for (AddedToken token : model().added) {
    if (token.normalized) token.content = normalized(token.content);
    LOOM_TRY((token.normalized ? after_ : before_).add(token));
    hash.add(uint64_t(token.left_strip) * 4 + uint64_t(token.right_strip) * 2 + uint64_t(token.normalized));
    hash.add(static_cast<uint64_t>(token.id));
  }
  hash_ = hash.value();
  return {};
}

Status PairTokenizer::index_roles(PairModel& model) {
  const auto find = [&](const std::string& given, const char* usual) -> std::optional<Token> {
    for (const AddedToken& token : model.added)
      if (token.content == (given.empty() ? usual : given)) return token.id;
    return std::nullopt;
  };
  const SpecialNames& names = model.names;
  specials_ = {find(names.begin, "<s>"), find(names.end, "</s>"), find(names.mask, "<mask>"),
               find(names.padding, "<pad>")};
  end_of_text_ = find(names.end_of_text, "<|endoftext|>");
  if (!end_of_text_ && names.end_of_text.empty()) end_of_text_ = find("", "</s>");
  if (!model.around) {
    model.around.emplace();
    if (specials_.begin && specials_.end && specials_.mask)
      model.around = {{*specials_.begin}, {*specials_.end}};
  }
  for (const std::vector<Token>* side : {&model.around->before, &model.around->after})
    for (const Token token : *side)
      if (!has(token))
        return fail(Code::invalid_data, "a text gets token {}, which is not in the vocabulary of [0, {})",
                    token, vocabulary_size());
  return {};
}

Status PairTokenizer::check_tokens(std::span<const Token> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (!has(tokens[i]))
      return fail(Code::invalid_argument, "token {} is {}, which is not in the vocabulary of [0, {})", i,
                  tokens[i], vocabulary_size());
  return {};
}

bool PairTokenizer::added_tokens_stay_in_lines() const {
  return std::none_of(model().added.begin(), model().added.end(), [](const AddedToken& token) {
    return token.left_strip || token.right_strip || token.content.find('\n') != std::string::npos;
  });
}

std::optional<Token> PairTokenizer::spelled(std::string_view spelling) const {
  const auto found = token_spelled_.find(spelling);
  return found == token_spelled_.end() ? std::nullopt : std::optional(found->second);
}

size_t PairTokenizer::end_of_pieces() const {
  constexpr char kAdded = 1, kPlain = 2;
  std::vector<char> kinds(spellings_.size());
  for (const AddedToken& token : model().added)
    kinds[static_cast<size_t>(token.id)] = token.special ? kAdded : kPlain;
  size_t end = spellings_.size();
  const size_t least = merges_.end_of_results();
  for (size_t id = end; id > least && kinds[id - 1] != 0; --id)
    if (kinds[id - 1] == kPlain) end = id - 1;
  return end;
}

Json PairTokenizer::vocabulary_json(size_t end) const {
  Json::object_t entries;  // looking for equal keys would take time squared
  for (size_t id = 0; id < end; ++id)
    if (!spellings_[id].empty()) entries.push_back({spellings_[id], id});
  return Json(std::move(entries));
}

Json PairTokenizer::merges_json() const {
  Json merges = Json::array();
  for (const auto& [left, right] : model().merges)
    merges.push_back(
        fmt::format("{} {}", spellings_[static_cast<size_t>(left)], spellings_[static_cast<size_t>(right)]));
  return merges;
}

Json PairTokenizer::roles_json() const {
  Json roles = Json::object();
  const auto name = [&](const char* role, std::optional<Token> token) {
    if (token) roles[role] = model().vocabulary[static_cast<size_t>(*token)];
  };
  name("bos_token", begin_of_text());
  name("eos_token", end_of_text());
  const SequenceTemplate& around = *model().around;
  if (around.before.size() == 1 && around.after.size() == 1 && specials_.begin == around.before[0] &&
      specials_.end == around.after[0]) {
    name("cls_token", specials_.begin);
    name("sep_token", specials_.end);
  }
  name("mask_token", specials_.mask);
  name("pad_token", specials_.padding);
  return roles;
}

}  // namespace loom::text
