// How the buffers of a unit's calls are divided.
#pragma once

#include <algorithm>

#include "model/attention.h"
#include "model/compute.h"
#include "model/feed_forward.h"

namespace loom::model {

/// What a block's forward leaves for its backward.
template <typename T>
struct BlockSaved {
  using A = acc_t<T>;
  Divider divider;
  T *norm1, *middle, *norm2;  // [M, C]; middle: after attention was added
  A *mean1, *rstd1, *mean2, *rstd2;
  AttentionSaved<T> attention;
  FeedForwardSaved<T> feed_forward;
  int64_t bytes;

  BlockSaved(const ModelSpec& spec, const Share& share, int64_t rows, std::byte* buffer)
      : divider(buffer),
        norm1(divider.take<T>(rows * spec.width)),
        middle(divider.take<T>(rows * spec.width)),
        norm2(divider.take<T>(rows * spec.width)),
        mean1(divider.take<A>(rows)),
        rstd1(divider.take<A>(rows)),
        mean2(divider.take<A>(rows)),
        rstd2(divider.take<A>(rows)),
        attention(divider, spec, share, rows),
        feed_forward(divider, share, rows),
        bytes(divider.bytes()) {}
};

/// A block's working arrays: `wide` serves the hidden layer and then attention's backward.
template <typename T>
struct BlockWorkspace {
  T *narrow, *masked, *wide;
  int64_t bytes;

  BlockWorkspace(const ModelSpec& spec, const Share& share, int64_t rows, std::byte* buffer) {
    Divider divider(buffer);
    narrow = divider.take<T>(rows * spec.width);
    masked = divider.take<T>(rows * spec.width);
    wide = divider.take<T>(rows * std::max(share.feed_forward, 4 * share.heads * spec.head_size()));
    bytes = divider.bytes();
  }
};

/// The head's working arrays.
template <typename T>
struct HeadWorkspace {
  using A = acc_t<T>;
  T *normed, *dnormed;
  A *mean, *rstd, *logits;
  int64_t bytes;

  HeadWorkspace(const ModelSpec& spec, int64_t rows, std::byte* buffer) {
    Divider divider(buffer);
    normed = divider.take<T>(rows * spec.width);
    dnormed = divider.take<T>(rows * spec.width);
    mean = divider.take<A>(rows);
    rstd = divider.take<A>(rows);
    logits = divider.take<A>(std::min(rows, kHeadRows) * spec.vocabulary);
    bytes = divider.bytes();
  }
};

}  // namespace loom::model
