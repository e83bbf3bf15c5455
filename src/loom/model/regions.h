// How the buffers of a unit's calls are divided: named arrays, one after the other, each aligned to 64 bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "model/compute.h"

namespace loom::model {

/// Hands out arrays of a buffer. With a null buffer it only counts.
class Divider {
 public:
  explicit Divider(std::byte* buffer) : buffer_(buffer) {}
  template <typename E>
  E* take(int64_t elements) {
    std::byte* at = buffer_ ? buffer_ + bytes_ : nullptr;
    bytes_ += (elements * static_cast<int64_t>(sizeof(E)) + 63) / 64 * 64;
    return reinterpret_cast<E*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* buffer_;
  int64_t bytes_ = 0;
};

/// What a block's forward leaves for its backward.
template <typename T>
struct BlockSaved {
  using A = acc_t<T>;
  T *norm1, *qkv, *attention, *middle, *norm2, *hidden, *activated;
  A *mean1, *rstd1, *lse, *mean2, *rstd2;
  int64_t bytes;

  BlockSaved(const ModelSpec& spec, int64_t batch, int64_t tokens, std::byte* buffer) {
    const int64_t rows = batch * tokens;
    Divider divider(buffer);
    norm1 = divider.take<T>(rows * spec.width);
    qkv = divider.take<T>(rows * 3 * spec.width);
    attention = divider.take<T>(rows * spec.width);
    middle = divider.take<T>(rows * spec.width);  // after attention was added
    norm2 = divider.take<T>(rows * spec.width);
    hidden = divider.take<T>(rows * spec.feed_forward);
    activated = divider.take<T>(rows * spec.feed_forward);
    mean1 = divider.take<A>(rows);
    rstd1 = divider.take<A>(rows);
    lse = divider.take<A>(rows * spec.heads);
    mean2 = divider.take<A>(rows);
    rstd2 = divider.take<A>(rows);
    bytes = divider.bytes();
  }
};

/// A block's working arrays: `wide` serves the hidden layer and then d(qkv) with d(attention) behind it.
template <typename T>
struct BlockWorkspace {
  T *narrow, *masked, *wide;
  int64_t bytes;

  BlockWorkspace(const ModelSpec& spec, int64_t rows, std::byte* buffer) {
    Divider divider(buffer);
    narrow = divider.take<T>(rows * spec.width);
    masked = divider.take<T>(rows * spec.width);
    wide = divider.take<T>(rows * std::max(spec.feed_forward, 4 * spec.width));
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
