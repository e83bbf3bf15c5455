// MaskedBatches: masked language modelling (Devlin et al., 2019). A sequence of length T is a beginning, T -
// 2 tokens of the dataset and an end. Of the tokens between, 15 % are targets; of these 80 % are hidden by
// the mask, 10 % are replaced by a token at random, which is never padding, and 10 % stay.
//
// Every sequence has the same number of targets, so that the mean over a batch is the mean of its sequences'
// means. Only where a window holds so many special tokens that too few others are left are there fewer. Which
// tokens are chosen is a function of seed, step and row (a permutation by a counter): any split of the batch
// and any resumed run see the same.
//
// Thread safety: may be used from any thread at once, but for go_on().
#pragma once

#include <memory>

#include "text/batches.h"

namespace loom::text {

/// Targets of a sequence of length T ≥ 3: 15 % of the tokens between beginning and end, at least one.
int64_t masked_targets(int64_t length);

class MaskedBatches final : public BatchSource {
 public:
  /// Errors: invalid_argument for a tokenizer without beginning, end and mask, for sequences of less than 3
  /// tokens, and as Batches.
  static Result<MaskedBatches> create(std::shared_ptr<const TokenDataset> dataset,
                                      const SpecialTokens& specials, const BatchOptions& options);

  uint64_t windows() const override { return windows_.windows(); }
  uint64_t dataset_key() const override { return windows_.dataset_key(); }
  int64_t targets(uint64_t, int64_t rows) const override {
    return rows * masked_targets(options_.sequence_length);
  }
  Status read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const override;
  void go_on(uint64_t step, uint64_t sequence) override {
    BatchSource::go_on(step, sequence);
    windows_.go_on(step, sequence);
  }

 private:
  MaskedBatches(Batches windows, const SpecialTokens& specials, const BatchOptions& options)
      : BatchSource(options), windows_(std::move(windows)), specials_(specials) {}
  bool is_special(Token token) const;
  void hide(uint64_t step, int64_t row, std::span<Token> inputs, std::span<Token> targets) const;

  Batches windows_;  // of T - 2 tokens
  SpecialTokens specials_;
};

}  // namespace loom::text
