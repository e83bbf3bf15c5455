// Arguments of attention's kernels, and the sizes of their tiles, which the launch needs as well.
//
// Forward is one kernel. Backward is three: attention_delta, then dK and dV by tiles of keys
// (attention_backward_keys), and dQ by tiles of queries (attention_backward_queries). The last two make the
// probabilities again from lse, each for itself, so that no sum needs atomics: the same bits in every run. A
// block of attention_backward_keys takes all heads of queries that share its keys, one after the other.
#pragma once

#include <cstdint>

#include "device/cuda/kernels/primitives.h"
#include "ops/philox.h"

namespace loom::cuda {

/// As ops::AttentionShape, where a field has no comment. T is the kernel's type; rows of qkv are qkv_heads()
/// heads, those of queries, of keys and of values, and rows of the outputs are `heads`.
struct AttentionArguments {
  const std::byte* qkv;    // [B, S, qkv_heads() · head_size] of T
  std::byte* out;          // [B, S, heads · head_size] of T; forward only
  float* lse;              // [B, heads, S]; written by forward, read by backward
  const std::byte* dout;   // as out; backward only, as delta and dqkv
  const float* delta;      // [B, heads, S]
  std::byte* dqkv;         // as qkv
  const int32_t* lengths;  // [B], or null
  const int32_t* begins;   // [B, S], or null
  const int32_t* ends;
  uint64_t first_drawn;     // dropout.first
  ops::RandomKey key;       // of the dropout
  uint32_t drop_threshold;  // 0: no dropout
  float keep;               // 1 / (1 - probability)
  uint32_t batch, tokens, heads, key_heads, head_size;
  uint32_t first_head, all_heads;  // of queries
  uint32_t window;
  uint32_t causal, alibi;  // 0 or 1
  float scale;
  uint32_t element_bytes;
  uint32_t in_chunks;  // 1: each head's row is whole, aligned chunks of 16 bytes, in every array of T

  constexpr uint32_t qkv_heads() const { return heads + 2 * key_heads; }
  /// Heads of queries that share a head of keys and values: neighbours.
  constexpr uint32_t sharing() const { return heads / key_heads; }

  /// Those of arrays that this launch does not have are null.
  template <typename Visit>
  void pointers(Visit&& visit) {
    const int64_t rows = int64_t{batch} * tokens * heads, of_head = int64_t{head_size} * element_bytes;
    const int64_t bytes = rows * of_head, qkv_bytes = int64_t{batch} * tokens * qkv_heads() * of_head;
    visit(qkv, qkv_bytes);
    visit(out, out != nullptr ? bytes : 0);
    visit(lse, rows);
    visit(dout, dout != nullptr ? bytes : 0);
    visit(delta, delta != nullptr ? rows : 0);
    visit(dqkv, dqkv != nullptr ? qkv_bytes : 0);
    visit(lengths, lengths != nullptr ? int64_t{batch} : 0);
    visit(begins, begins != nullptr ? int64_t{batch} * tokens : 0);
    visit(ends, ends != nullptr ? int64_t{batch} * tokens : 0);
  }
};

/// Head sizes that have kernels; others take the next larger one's, with zeros behind their end.
inline constexpr int kAttentionHeads[] = {64, 96, 128, 256};
/// for_kernel(name of the type, T, head size) for every element type and each of these sizes.
#define LOOM_EACH_ATTENTION_HEAD(for_kernel, type, T) \
  for_kernel(type, T, 64) for_kernel(type, T, 96) for_kernel(type, T, 128) for_kernel(type, T, 256)
#define LOOM_EACH_ATTENTION(for_kernel)             \
  LOOM_EACH_ATTENTION_HEAD(for_kernel, fp32, float) \
  LOOM_EACH_ATTENTION_HEAD(for_kernel, bf16, bf16)  \
  LOOM_EACH_ATTENTION_HEAD(for_kernel, fp16, fp16)

/// Tiles of one kernel. A block has `kRows` rows, of queries or (in attention_backward_keys) of keys, which
/// stay in shared memory; each warp has `kRowTiles` times 16 of them. Tiles of `kStreamed` rows of the other
/// kind go by, two stages of them. `kColumns` of the head's elements are a block's share of its output.
template <typename T, int head, int row_tiles, int warps, int streamed, int columns = head>
struct AttentionTiles {
  using Element = T;
  static constexpr int kHead = head, kRowTiles = row_tiles, kWarps = warps, kStreamed = streamed;
  static constexpr int kColumns = columns, kThreads = 32 * warps, kRows = 16 * row_tiles * warps;
  static constexpr int kShares = head / columns;  // blocks that share a tile's rows
  static constexpr bool kIsFp32 = sizeof(T) == 4;
  static constexpr int kResident = kRows * head, kStage = streamed * head;  // elements of one tile
  /// fp32: the probabilities of each warp, on their way from sums to factors.
  static constexpr int kScratch = kIsFp32 ? kRows * streamed : 0;
  /// Bytes with `resident` tiles, and `statistics` floats for each streamed row.
  static constexpr size_t shared_bytes(int resident, int statistics) {
    return (static_cast<size_t>(resident) * kResident + 4 * kStage) * sizeof(T) +
           (2 * static_cast<size_t>(statistics) * kStreamed + kScratch) * sizeof(float);
  }
};

// Chosen so that no kernel spills registers (cuda_kernels.registers checks it). Nobody has timed them: two
// tiles of rows in a warp halve what it reads of shared memory, one leaves room for more blocks.
template <typename T, int head>
struct AttentionForwardTiles : AttentionTiles<T, head, head == 256 ? 1 : 2, 4, head == 64 ? 64 : 32> {};
template <int head>
struct AttentionForwardTiles<float, head> : AttentionTiles<float, head, 1, head == 256 ? 2 : 4, 16> {};

template <typename T, int head>
struct AttentionQueriesTiles : AttentionTiles<T, head, head == 64 ? 2 : 1, 4, head == 256 ? 16 : 32> {};
template <int head>
struct AttentionQueriesTiles<float, head> : AttentionTiles<float, head, 1, head == 256 ? 2 : 4, 16> {};

template <typename T, int head>
struct AttentionKeysTiles : AttentionTiles<T, head, 1, 4, head == 256 ? 16 : 32, head == 256 ? 128 : head> {};
template <int head>
struct AttentionKeysTiles<float, head>
    : AttentionTiles<float, head, 1, head == 256 ? 2 : 4, 16, head == 256 ? 128 : head> {};

}  // namespace loom::cuda
