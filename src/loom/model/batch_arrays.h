// BatchArrays: what the host derives from a microbatch's tokens and targets, for the kernels that read it
// beside them. No kernel's size depends on what a device computes, so the host launches all of a step ahead.
//
//   lengths    [batch]  tokens of each sequence before its padding, at least 1; where the spec has padding
//   positions  [M]      row of the table of positions, counted from that of a sequence's or text's first
//                       token; only where a sequence has padding before its last token, in a model that
//                       counts positions from padding; or, in a model with learned positions,
//                       where sequences hold several texts
//   begins     [M]      where, in its sequence, the text of each token begins; only where sequences hold
//                       several texts
//   ends       [M]      behind which token that text ends; as begins
//   rows       [R]      rows that the head puts together, among those that this rank has; -1: another rank's
//   targets    [R]      the targets of `rows`
//   back       [own]    for each row that this rank has, which of the R it is; -1: none
//   count               how many of the R places count, on the host alone
//
// Several texts in a sequence. Targets say where one ends: text::kEndsText stands at its last token.
// Positions count from the text's first token then. What follows the last text is one more, of padding.
//
// Positions. RoBERTa counts the tokens of a sequence that are no padding (`transformers`'
// create_position_ids_from_input_ids). Every padding token takes the row before the first position, -1. That
// row is not trained, nor is the padding token's own row. Padding behind the last token makes no difference,
// since nobody sees it.
//
// Several tensor ranks, and GPUs, have R places always. Where some stay empty, row and target are -1 and
// count is R.
//
// batch_layout.h makes them.
//
// Thread safety: a value.
#pragma once

#include <cstdint>

namespace loom::model {

/// Addresses in the device's memory. Those that the spec, or the head's pass, has no use for are null.
struct BatchArrays {
  const int32_t* lengths = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* begins = nullptr;
  const int32_t* ends = nullptr;
  const int32_t* rows = nullptr;
  const int32_t* targets = nullptr;
  const int32_t* back = nullptr;
  int64_t count = 0;
};

}  // namespace loom::model
