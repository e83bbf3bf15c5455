// Positions where padding has none. RoBERTa counts the tokens of a sequence that are no padding
// (`transformers`' create_position_ids_from_input_ids). Every padding token takes the row of the table before
// the first position. That row is not trained, nor is the padding token's own row. Padding behind the last
// token makes no difference, since nobody sees it. A sequence with padding inside is cut into runs; all
// others count like those of other models.
//
// Thread safety: pure functions.
#pragma once

#include "model/pass.h"

namespace loom::model {

/// Rows [first, first + rows) of a pass. Row first + k has the row `place` + (phase + k) % period of the
/// table of positions, counted from that of a sequence's first token.
struct PositionRun {
  int64_t first = 0, rows = 0;
  int64_t place = 0, period = 1, phase = 0;
  bool padding = false;  // inside a sequence
};

/// Whether a sequence has padding before its last token, in a model that counts positions from it.
inline bool has_padding_inside(const ModelSpec& spec, const int32_t* token, int64_t tokens) {
  if (spec.first_position == 0) return false;
  int64_t length = tokens;
  while (length > 0 && token[length - 1] == spec.padding) --length;
  for (int64_t t = 0; t < length; ++t)
    if (token[t] == spec.padding) return true;
  return false;
}

/// run(PositionRun) for rows [begin, end) of a pass, in order: one where no sequence has padding inside.
/// `token` is the pass's, [batch, tokens].
template <typename F>
void for_position_runs(const Pass& pass, const int32_t* token, int64_t begin, int64_t end, F&& run) {
  const ModelSpec& spec = *pass.spec;
  const int64_t tokens = pass.tokens;
  PositionRun plain{begin, 0, 0, tokens, begin % tokens, false};
  const auto flush = [&](int64_t next) {
    if (plain.rows > 0) run(plain);
    plain = {next, 0, 0, tokens, next % tokens, false};
  };
  for (int64_t first = begin / tokens * tokens; first < end; first += tokens) {
    const int64_t from = first > begin ? first : begin, to = first + tokens < end ? first + tokens : end;
    if (!has_padding_inside(spec, token + first, tokens)) {
      plain.rows += to - from;
      continue;
    }
    flush(from);
    int64_t seen = 0;  // tokens of the sequence that are no padding
    for (int64_t row = first; row < to;) {
      const bool padding = token[row] == spec.padding;
      int64_t last = row;
      while (last < to && (token[last] == spec.padding) == padding) ++last;
      const int64_t skipped = row < from ? (last < from ? last : from) - row : 0, rows = last - row - skipped;
      if (rows > 0)
        run(padding ? PositionRun{row + skipped, rows, -1, 1, 0, true}
                    : PositionRun{row + skipped, rows, seen + skipped, rows, 0, false});
      if (!padding) seen += last - row;
      row = last;
    }
    plain = {to, 0, 0, tokens, to % tokens, false};
  }
  flush(end);
}

}  // namespace loom::model
