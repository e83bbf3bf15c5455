#include "text/batches.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "text/permutation.h"

namespace loom::text {

Status check_sizes(const BatchOptions& options) {
  if (options.sequence_length >= 1 && options.global_batch >= 1) return {};
  return fail(Code::invalid_argument, "{} sequences of {} tokens, must be at least 1 of 1",
              options.global_batch, options.sequence_length);
}

Result<Batches> Batches::create(std::shared_ptr<const TokenDataset> dataset, const BatchOptions& options) {
  LOOM_TRY(check_sizes(options));
  const uint64_t length = static_cast<uint64_t>(options.sequence_length);
  if (dataset->tokens() <= length) {
    return fail(Code::invalid_argument,
                "{} has {} tokens, must have at least {} for one sequence of {} and what follows it",
                dataset->folder(), dataset->tokens(), length + 1, length);
  }
  const uint64_t windows = (dataset->tokens() - 1) / length;
  return Batches(std::move(dataset), options, windows);
}

uint64_t example_at(uint64_t step, int64_t row, const BatchOptions& options, uint64_t size) {
  // After 2^64 rows the list would begin again.
  const uint64_t index = sequence_at(step, row, options);
  const uint64_t place = index % size;
  return options.shuffle ? Permutation(size, options.seed, index / size)(place) : place;
}

uint64_t Batches::window(uint64_t step, int64_t row) const {
  return example_at(step, row, options_, windows_);
}

Status check_rows(Rows rows, int64_t global_batch, int64_t length, size_t inputs, size_t targets) {
  if (rows.begin < 0 || rows.count < 0 || rows.begin > global_batch - rows.count) {
    return fail(Code::invalid_argument, "rows [{}, {}), must be in [0, {})", rows.begin,
                rows.begin + rows.count, global_batch);
  }
  const size_t expected = static_cast<size_t>(rows.count * length);
  if (inputs != expected || targets != expected) {
    return fail(Code::invalid_argument,
                "room for {} inputs and {} targets, must be {} each: {} sequences of {}", inputs, targets,
                expected, rows.count, length);
  }
  return {};
}

Status Batches::read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const {
  const int64_t length = options_.sequence_length;
  LOOM_TRY(check_rows(rows, options_.global_batch, length, inputs.size(), targets.size()));
  for (int64_t row = 0; row < rows.count; ++row) {
    const uint64_t begin = window(step, rows.begin + row) * static_cast<uint64_t>(length);
    const size_t at = static_cast<size_t>(row * length), some = static_cast<size_t>(length);
    LOOM_TRY(dataset_->read(begin, inputs.subspan(at, some)));
    // A target is the input one further; only the last is not among the inputs.
    std::copy_n(inputs.begin() + static_cast<std::ptrdiff_t>(at + 1), some - 1,
                targets.begin() + static_cast<std::ptrdiff_t>(at));
    LOOM_TRY(dataset_->read(begin + some, targets.subspan(at + some - 1, 1)));
  }
  return {};
}

}  // namespace loom::text
