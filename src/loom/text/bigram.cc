#include "text/bigram.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "text/dataset.h"

namespace loom::text {

void BigramModel::add(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char byte = static_cast<unsigned char>(text[i]);
    ++alone_[byte];
    ++total_;
    if (i == 0) continue;
    const unsigned char previous = static_cast<unsigned char>(text[i - 1]);
    ++followed_[previous];
    if (pairs_[previous * 256u + byte]++ == 0) ++variety_[previous];
  }
}

double BigramModel::probability_alone(unsigned char byte) const {
  return (static_cast<double>(alone_[byte]) + 1) / (static_cast<double>(total_) + 256);
}

double BigramModel::probability(unsigned char previous, unsigned char next) const {
  const double alone = probability_alone(next);
  if (followed_[previous] == 0) return alone;
  const double variety = static_cast<double>(variety_[previous]);
  return (static_cast<double>(pairs_[previous * 256u + next]) + variety * alone) /
         (static_cast<double>(followed_[previous]) + variety);
}

double BigramModel::surprise(std::string_view text) const {
  double sum = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    sum -=
        std::log(probability(static_cast<unsigned char>(text[i - 1]), static_cast<unsigned char>(text[i])));
  }
  return sum;
}

namespace {

/// Calls `use(text)` with every document of a split, or of its first `tokens`; 0: all.
template <typename Use>
Status each_document(const std::string& folder, Split split, const Tokenizer& tokenizer, uint64_t tokens,
                     Use use) {
  const Result<std::shared_ptr<const TokenDataset>> dataset = TokenDataset::open(folder, split);
  if (!dataset.ok()) return dataset.status();
  if ((*dataset)->tokenizer_hash() != tokenizer.hash()) {
    return fail(Code::invalid_data, "the tokens of {} were not made by the tokenizer beside them", folder);
  }
  std::vector<Token> document, block;
  const auto finish = [&]() -> Status {
    const std::span<const Token> whole = document;
    const Result<std::string> text = tokenizer.decode(whole.subspan(tokenizer.begun(whole)));
    if (!text.ok()) return text.status();
    use(*text);
    document.clear();
    return {};
  };
  constexpr uint64_t kBlock = uint64_t{1} << 20;
  const uint64_t all = (*dataset)->tokens(), end = tokens > 0 ? std::min(tokens, all) : all;
  for (uint64_t at = 0; at < end; at += block.size()) {
    block.resize(static_cast<size_t>(std::min(kBlock, end - at)));
    LOOM_TRY((*dataset)->read(at, block));
    for (const Token token : block) {
      if (token == tokenizer.end_of_text()) LOOM_TRY(finish());
      else document.push_back(token);
    }
  }
  return finish();
}

}  // namespace

Result<double> bigram_baseline(const std::string& folder, uint64_t tokens) {
  const Result<std::shared_ptr<const Tokenizer>> tokenizer = open_tokenizer(folder);
  if (!tokenizer.ok()) return tokenizer.status();
  BigramModel model;
  LOOM_TRY(
      each_document(folder, Split::train, **tokenizer, 0, [&](std::string_view text) { model.add(text); }));
  double nats = 0;
  size_t predicted = 0;
  LOOM_TRY(each_document(folder, Split::validation, **tokenizer, tokens, [&](std::string_view text) {
    if (text.size() < 2) return;
    nats += model.surprise(text);
    predicted += text.size() - 1;
  }));
  if (predicted > 0) return nats / static_cast<double>(predicted);
  return fail(Code::invalid_data, "no validation document of {} has two bytes, there is nothing to predict",
              folder);
}

Result<uint64_t> text_bytes_of_part(const std::string& folder, const Tokenizer& tokenizer, uint64_t tokens) {
  uint64_t bytes = 0;
  LOOM_TRY(each_document(folder, Split::validation, tokenizer, tokens,
                         [&](std::string_view text) { bytes += text.size(); }));
  return bytes;
}

}  // namespace loom::text
