// BatchSource: the sequences that a step trains on. The sequences of all steps are one endless list, epoch
// after epoch. Its order depends only on length, packing and seed, not on how many ranks share a step. A step
// takes the next `global_batch` of them, so nothing has to be remembered between steps.
//
// Thread safety: may be used from any thread at once, but for go_on().
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"

namespace loom::text {

struct BatchOptions {
  int64_t sequence_length = 0;  // T
  int64_t global_batch = 0;     // B, rows of a step over all ranks
  uint64_t seed = 0;
  bool shuffle = true;  // false: in order, for validation
  bool pack = false;    // as many texts in a sequence as it has room for, of texts with completions
  // The sequence that a step begins with; others count from there.
  uint64_t from_step = 0, from_sequence = 0;
};

/// Rows [begin, begin + count) of a step.
struct Rows {
  int64_t begin = 0;
  int64_t count = 0;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Sequences of an epoch.
  virtual uint64_t windows() const = 0;
  /// Of the dataset's content; another dataset is another list.
  virtual uint64_t dataset_key() const = 0;
  /// What the loss of the first `rows` sequences of a step is the mean over: one at least for each.
  virtual int64_t targets(uint64_t step, int64_t rows) const = 0;
  /// A sentence for the user about data that is left out; or "".
  virtual std::string note() const { return ""; }
  /// Copies rows: inputs and targets are [rows.count, T] each, row-major; kNoTarget and
  /// kEndsText are no targets. Errors:
  /// invalid_argument (rows outside the batch, spans of another size), invalid_data.
  virtual Status read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const = 0;
  /// Step `step` begins with that sequence of the list, and later ones go on from there. Without it step 0
  /// begins with sequence 0. Not while another thread reads.
  virtual void go_on(uint64_t step, uint64_t sequence) {
    options_.from_step = step, options_.from_sequence = sequence;
  }

 protected:
  explicit BatchSource(const BatchOptions& options = {}) : options_(options) {}
  BatchOptions options_;
};

/// The errors of read() that all sources have; `length` is T.
Status check_rows(Rows rows, int64_t global_batch, int64_t length, size_t inputs, size_t targets);

}  // namespace loom::text
