// How the buffers of a divided unit's pieces are divided themselves.
#pragma once

#include "model/head_layers.h"
#include "model/split_compute.h"

namespace loom::model {

/// What a block's forward leaves for its backward, besides what its sublayers read. Arrays that a family has
/// no use for have no elements.
template <typename T>
struct SplitBlockSaved {
  using A = acc_t<T>;
  Divider divider;
  T* middle;       // own [M, C], after attention was added
  T *sum1, *sum2;  // own [M, C], post-norm: what is normalized
  A *mean1, *rstd1, *mean2, *rstd2;
  AttentionSaved<T> attention;
  FeedForwardSaved<T> feed_forward;
  int64_t bytes;

  SplitBlockSaved(const ModelSpec& spec, const Share& share, int64_t rows, int64_t own, std::byte* buffer)
      : divider(buffer),
        middle(divider.take<T>(own * spec.width)),
        sum1(divider.take<T>(spec.norms == NormPlacement::post ? own * spec.width : 0)),
        sum2(divider.take<T>(spec.norms == NormPlacement::post ? own * spec.width : 0)),
        mean1(divider.take<A>(own)),
        rstd1(divider.take<A>(own)),
        mean2(divider.take<A>(own)),
        rstd2(divider.take<A>(own)),
        attention(divider, spec, share, rows),
        feed_forward(divider, share, rows),
        bytes(divider.bytes()) {}
};

/// What a head's first piece leaves for its last.
template <typename T>
struct SplitHeadSaved {
  Divider divider;
  HeadArrays<T> arrays;
  int64_t bytes;

  SplitHeadSaved(const ModelSpec& spec, int64_t own, std::byte* buffer)
      : divider(buffer), arrays(divider, spec, own, 1), bytes(divider.bytes()) {}
};

}  // namespace loom::model
