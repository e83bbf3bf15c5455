#include "text/batches.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "text/permutation.h"

namespace loom::text {

Result<Batches> Batches::create(std::shared_ptr<const TokenDataset> dataset, const BatchOptions& options) {
  if (options.sequence_length < 1 || options.global_batch < 1) {
    return fail(Code::invalid_argument, "{} sequences of {} tokens, must be at least 1 of 1",
                options.global_batch, options.sequence_length);
  }
  const uint64_t length = static_cast<uint64_t>(options.sequence_length);
  if (dataset->tokens() <= length) {
    return fail(Code::invalid_argument,
                "{} has {} tokens, must have at least {} for one sequence of {} and what follows it",
                dataset->folder(), dataset->tokens(), length + 1, length);
  }
  const uint64_t windows = (dataset->tokens() - 1) / length;
  return Batches(std::move(dataset), options, windows);
}

Result<Rows> Batches::rows_of(int rank, int ranks) const {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail(Code::invalid_argument, "rank {} of {}, must be in [0, {})", rank, ranks, ranks);
  }
  if (options_.global_batch % ranks != 0) {
    return fail(Code::invalid_argument, "a global batch of {} sequences, must be a multiple of {} ranks",
                options_.global_batch, ranks);
  }
  const int64_t count = options_.global_batch / ranks;
  return Rows{rank * count, count};
}

uint64_t Batches::window(uint64_t step, int64_t row) const {
  // After 2^64 rows the list would begin again.
  const uint64_t index = step * static_cast<uint64_t>(options_.global_batch) + static_cast<uint64_t>(row);
  const uint64_t place = index % windows_;
  return options_.shuffle ? Permutation(windows_, options_.seed, index / windows_)(place) : place;
}

Status Batches::read(uint64_t step, Rows rows, std::span<Token> inputs, std::span<Token> targets) const {
  const int64_t length = options_.sequence_length;
  if (rows.begin < 0 || rows.count < 0 || rows.begin > options_.global_batch - rows.count) {
    return fail(Code::invalid_argument, "rows [{}, {}), must be in [0, {})", rows.begin,
                rows.begin + rows.count, options_.global_batch);
  }
  const size_t expected = static_cast<size_t>(rows.count * length);
  if (inputs.size() != expected || targets.size() != expected) {
    return fail(Code::invalid_argument,
                "room for {} inputs and {} targets, must be {} each: {} sequences of {}", inputs.size(),
                targets.size(), expected, rows.count, length);
  }
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
