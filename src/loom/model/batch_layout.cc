// Lengths, places of texts, positions, and the rows of the head.
#include "model/batch_layout.h"

#include <algorithm>
#include <numeric>

#include "base/round.h"
#include "model/objectives/objective.h"
#include "model/sequence_parallel.h"
#include "text/tokenizer.h"

namespace loom::model {
namespace {

/// Tokens before a sequence's padding; it may have none.
int64_t length_of(const ModelSpec& spec, const int32_t* token, int64_t tokens) {
  while (tokens > 0 && token[tokens - 1] == spec.padding) --tokens;
  return tokens;
}

/// Of one sequence; whether it has padding inside. Else its positions are those of other models.
bool find_positions(const ModelSpec& spec, const int32_t* token, int64_t tokens, int32_t* position) {
  const int32_t* const end = token + length_of(spec, token, tokens);
  const bool inside = std::find(token, end, spec.padding) != end;
  int32_t seen = 0;
  for (int64_t t = 0; t < tokens; ++t)
    position[t] = !inside ? static_cast<int32_t>(t) : token[t] == spec.padding ? -1 : seen++;
  return inside;
}

}  // namespace

BatchLayout::BatchLayout(const ModelSpec& spec, const RecipeSizes& sizes, bool fixed)
    : spec_(spec),
      sizes_(sizes),
      fixed_(fixed),
      places_(picked_rows(spec, sizes, HeadPass::loss)),
      places_of_one_(picked_rows(spec, sizes, HeadPass::logits)) {
  const auto take = [&](int64_t elements) {
    constexpr int64_t kAlign = 64;
    const int64_t at = bytes_;
    bytes_ += round_up(elements * static_cast<int64_t>(sizeof(int32_t)), kAlign);
    return at;
  };
  if (spec.padding >= 0) take(sizes.batch);
  if (sizes.packed) begins_ = take(sizes.rows()), ends_ = take(sizes.rows());
  if (spec.first_position > 0 || (sizes.packed && spec.position == Position::learned))
    positions_ = take(sizes.rows());
  rows_ = take(std::max(places_, places_of_one_));
  targets_ = take(std::max(places_, places_of_one_));
  if (places_ > 0) back_ = take(own_rows(sizes.share, sizes.rows()));
}

BatchArrays BatchLayout::fill(const int32_t* token, const int32_t* target, int64_t only_row, std::byte* host,
                              const std::byte* device) const {
  BatchArrays arrays;
  int32_t* const lengths = reinterpret_cast<int32_t*>(host);
  if (spec_.padding >= 0) {
    arrays.lengths = reinterpret_cast<const int32_t*>(device);
    for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence)
      lengths[sequence] = static_cast<int32_t>(
          std::max(int64_t{1}, length_of(spec_, token + sequence * sizes_.tokens, sizes_.tokens)));
  }
  if (sizes_.packed && only_row < 0) {
    fill_texts(target, host);
    arrays.begins = reinterpret_cast<const int32_t*>(device + begins_);
    arrays.ends = reinterpret_cast<const int32_t*>(device + ends_);
    if (positions_ >= 0) arrays.positions = reinterpret_cast<const int32_t*>(device + positions_);
  } else if (spec_.first_position > 0) {
    bool inside = false;
    for (int64_t first = 0; first < sizes_.rows(); first += sizes_.tokens)
      inside |= find_positions(spec_, token + first, sizes_.tokens,
                               reinterpret_cast<int32_t*>(host + positions_) + first);
    if (inside || fixed_) arrays.positions = reinterpret_cast<const int32_t*>(device + positions_);
  }
  if (only_row < 0 && (places_ == 0 || target == nullptr)) return arrays;
  arrays.rows = reinterpret_cast<const int32_t*>(device + rows_);
  arrays.targets = reinterpret_cast<const int32_t*>(device + targets_);
  if (back_ >= 0) arrays.back = reinterpret_cast<const int32_t*>(device + back_);
  fill_rows(target, only_row, arrays.lengths != nullptr ? lengths : nullptr, host, arrays);
  return arrays;
}

void BatchLayout::fill_texts(const int32_t* target, std::byte* host) const {
  int32_t *const begins = reinterpret_cast<int32_t*>(host + begins_),
                 *const ends = reinterpret_cast<int32_t*>(host + ends_),
                 *const positions = positions_ < 0 ? nullptr : reinterpret_cast<int32_t*>(host + positions_);
  const int64_t tokens = sizes_.tokens;
  for (int64_t first = 0; first < sizes_.rows(); first += tokens)
    for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {
      const int32_t* const all = target + first;
      end = std::min(std::find(all + begin, all + tokens, text::kEndsText) - all + 1, tokens);
      std::fill(begins + first + begin, begins + first + end, static_cast<int32_t>(begin));
      std::fill(ends + first + begin, ends + first + end, static_cast<int32_t>(end));
      if (positions != nullptr) std::iota(positions + first + begin, positions + first + end, 0);
    }
}

/// The rows in their order.
void BatchLayout::fill_rows(const int32_t* target, int64_t only_row, const int32_t* lengths, std::byte* host,
                            BatchArrays& arrays) const {
  int32_t *const rows = reinterpret_cast<int32_t*>(host + rows_),
                 *const targets = reinterpret_cast<int32_t*>(host + targets_),
                 *const back = back_ < 0 ? nullptr : reinterpret_cast<int32_t*>(host + back_);
  const int64_t tokens = sizes_.tokens, most = only_row < 0 ? places_ : places_of_one_;
  const int64_t own = own_rows(sizes_.share, sizes_.rows()),
                first = first_own_row(sizes_.share, sizes_.rows());
  if (back != nullptr) std::fill_n(back, own, -1);
  const auto take = [&](int64_t row, int32_t of_row) {
    const int64_t here = row - first;
    const bool is_own = here >= 0 && here < own;
    if (is_own && back != nullptr) back[here] = static_cast<int32_t>(arrays.count);
    rows[arrays.count] = is_own ? static_cast<int32_t>(here) : -1;
    targets[arrays.count++] = of_row;
  };
  const auto pooled = [&](int64_t sequence) {
    if (spec_.pooling == Pooling::first) return sequence * tokens;
    return sequence * tokens + (lengths != nullptr ? lengths[sequence] : tokens) - 1;
  };
  const bool pools = spec_.objective().rows == HeadRows::one_of_sequence;
  if (only_row >= 0) take(pools ? pooled(only_row / tokens) : only_row, -1);
  else if (pools)
    for (int64_t sequence = 0; sequence < sizes_.batch; ++sequence)
      take(pooled(sequence), target[sequence * tokens]);
  else
    for (int64_t row = 0; row < sizes_.rows() && arrays.count < most; ++row)
      if (target[row] >= 0) take(row, target[row]);
  if (sizes_.share.degree > 1 || fixed_)
    for (; arrays.count < most; ++arrays.count) rows[arrays.count] = targets[arrays.count] = -1;
}

}  // namespace loom::model
