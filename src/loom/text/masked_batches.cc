#include "text/masked_batches.h"

#include <algorithm>

#include "ops/philox.h"
#include "text/permutation.h"

namespace loom::text {
namespace {

constexpr double kChosen = 0.15;
constexpr uint32_t kHidden = 3435973836u, kReplaced = 3865470566u;  // 80 % and 90 % of 2³²
constexpr uint32_t kMaskSite = 0xfffffffeu;                         // tells these draws from those of dropout

}  // namespace

Result<MaskedBatches> MaskedBatches::create(std::shared_ptr<const TokenDataset> dataset,
                                            const SpecialTokens& specials, const BatchOptions& options) {
  if (!specials.begin || !specials.end || !specials.mask)
    return fail(Code::invalid_argument,
                "the tokenizer of {} has no tokens for beginning, end and mask ([CLS], [SEP] and [MASK], or "
                "<s>, </s> and <mask>), which masked language modelling needs",
                dataset->folder());
  if (options.sequence_length < 3)
    return fail(Code::invalid_argument, "sequences of {} tokens, must be at least 3 to be masked",
                options.sequence_length);
  BatchOptions inner = options;
  inner.sequence_length -= 2;
  Result<Batches> windows = Batches::create(std::move(dataset), inner);
  LOOM_TRY(windows.status());
  return MaskedBatches(windows.take(), specials, options);
}

int64_t masked_targets(int64_t length) {
  return std::max<int64_t>(1, static_cast<int64_t>(kChosen * static_cast<double>(length - 2) + 0.5));
}

bool MaskedBatches::is_special(Token token) const {
  return token == specials_.begin || token == specials_.end || token == specials_.mask ||
         token == specials_.padding;
}

/// Takes places in the order of a permutation until there are enough.
void MaskedBatches::hide(uint64_t step, int64_t row, std::span<Token> inputs,
                         std::span<Token> targets) const {
  const uint64_t inner = inputs.size() - 2;
  const uint64_t number = sequence_at(step, row, options_);
  const Permutation order(inner, options_.seed ^ 0x6d61736bu, number);
  const ops::RandomKey key{options_.seed, static_cast<uint32_t>(step), kMaskSite};
  const uint64_t vocabulary = static_cast<uint64_t>(windows_.dataset().vocabulary_size());
  int64_t left = masked_targets(options_.sequence_length);
  for (uint64_t i = 0; i < inner && left > 0; ++i) {
    const size_t at = static_cast<size_t>(order(i)) + 1;
    if (is_special(inputs[at])) continue;
    targets[at] = inputs[at];
    --left;
    const ops::Philox4 draw = ops::philox(key, static_cast<uint64_t>(row) * inputs.size() + at);
    const auto drawn = static_cast<Token>(draw.word[1] * vocabulary >> 32);
    if (draw.word[0] < kHidden) inputs[at] = *specials_.mask;
    // Padding is no text: nobody would see it, and RoBERTa counts positions without it. The token stays.
    else if (draw.word[0] < kReplaced && drawn != specials_.padding) inputs[at] = drawn;
  }
}

Status MaskedBatches::read(uint64_t step, Rows rows, std::span<Token> inputs,
                           std::span<Token> targets) const {
  const int64_t length = options_.sequence_length;
  LOOM_TRY(check_rows(rows, options_.global_batch, length, inputs.size(), targets.size()));
  for (int64_t row = 0; row < rows.count; ++row) {
    const auto at = static_cast<size_t>(row * length), some = static_cast<size_t>(length);
    const std::span<Token> in = inputs.subspan(at, some), out = targets.subspan(at, some);
    // What follows each token is not asked for here, and is written where the targets come afterwards.
    LOOM_TRY(windows_.read(step, {rows.begin + row, 1}, in.subspan(1, some - 2), out.subspan(1, some - 2)));
    std::fill(out.begin(), out.end(), Token{-1});
    in.front() = *specials_.begin;
    in.back() = *specials_.end;
    hide(step, rows.begin + row, in, out);
  }
  return {};
}

}  // namespace loom::text
