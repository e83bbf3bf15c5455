// BatchSource: what a step is trained on. The batch of a step depends on seed and step only, never on how
// many ranks share it, and nothing has to be remembered between steps.
//
// Thread safety: may be used from any thread at once.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "text/tokenizer.h"

namespace loom::text {

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
  /// Targets of a sequence, that its loss is the mean over.
  virtual int64_t targets() const = 0;
  /// Copies rows: inputs and targets are [rows.count, T] each, row-major; a negative target is none. Errors:
  /// invalid_argument (rows outside the batch, spans of another size), invalid_data.
  virtual Status read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const = 0;
};

/// The errors of read() that all sources have; `length` is T.
Status check_rows(Rows rows, int64_t global_batch, int64_t length, size_t inputs, size_t targets);

}  // namespace loom::text
