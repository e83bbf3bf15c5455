// Batches: the windows of a dataset that each step trains on. Window w of length T is the tokens [wT, wT +
// T]: the first T are inputs, the last T targets. Step s trains on the rows sB … sB + B - 1 of an endless
// list: epoch after epoch, all windows once each, shuffled by (seed, epoch).
//
// So the batch of a step depends only on seed and step, not on how many ranks share it. Rank r of n takes
// the rows [rB/n, (r+1)B/n). A checkpoint only has to keep how many rows have been trained on. A run that
// goes on with another B counts from there.
//
// Thread safety: may be used from any thread at once, but for go_on().
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "text/batch_source.h"
#include "text/dataset.h"

namespace loom::text {

/// That both are at least 1. Errors: invalid_argument.
Status check_sizes(const BatchOptions& options);

/// The number of a row of a step in the endless list of sequences.
inline uint64_t sequence_at(uint64_t step, int64_t row, const BatchOptions& options) {
  return options.from_sequence + (step - options.from_step) * static_cast<uint64_t>(options.global_batch) +
         static_cast<uint64_t>(row);
}

/// Which of the `size` sequences of a dataset a row of a step is.
uint64_t example_at(uint64_t step, int64_t row, const BatchOptions& options, uint64_t size);

class Batches final : public BatchSource {
 public:
  /// Errors: invalid_argument for lengths or batches below 1, or a dataset that does not hold one window of T
  /// + 1 tokens.
  static Result<Batches> create(std::shared_ptr<const TokenDataset> dataset, const BatchOptions& options);

  /// Windows of an epoch.
  uint64_t windows() const override { return windows_; }
  uint64_t dataset_key() const override { return dataset_->key(); }
  int64_t targets(uint64_t, int64_t rows) const override { return rows * options_.sequence_length; }
  /// The window of a row of a step.
  uint64_t window(uint64_t step, int64_t row) const;
  Status read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const override;
  const BatchOptions& options() const { return options_; }
  const TokenDataset& dataset() const { return *dataset_; }

 private:
  Batches(std::shared_ptr<const TokenDataset> dataset, const BatchOptions& options, uint64_t windows)
      : BatchSource(options), dataset_(std::move(dataset)), windows_(windows) {}
  std::shared_ptr<const TokenDataset> dataset_;
  uint64_t windows_;
};

}  // namespace loom::text
