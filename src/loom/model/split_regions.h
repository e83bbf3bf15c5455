// How the buffers of a divided unit's pieces are divided themselves.
#pragma once

#include "model/split_compute.h"

namespace loom::model {

/// What a block's forward leaves for its backward, besides what its norms give.
template <typename T>
struct SplitBlockSaved {
  using A = acc_t<T>;
  Divider divider;
  T* middle;  // own [M, C], after attention was added
  A *mean1, *rstd1, *mean2, *rstd2;
  AttentionSaved<T> attention;
  FeedForwardSaved<T> feed_forward;
  int64_t bytes;

  SplitBlockSaved(const ModelSpec& spec, const Share& share, int64_t rows, int64_t own, std::byte* buffer)
      : divider(buffer),
        middle(divider.take<T>(own * spec.width)),
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
  using A = acc_t<T>;
  A *mean, *rstd;
  int64_t bytes;

  SplitHeadSaved(int64_t own, std::byte* buffer) {
    Divider divider(buffer);
    mean = divider.take<A>(own);
    rstd = divider.take<A>(own);
    bytes = divider.bytes();
  }
};

}  // namespace loom::model
