// The table of operators: everything that a model computes, as functions on plain arrays. The CPU's are
// compiled for several instruction sets, and one that this CPU has is chosen when the table is first asked
// for (ops/tables.h). A GPU has a table of its own (device/cuda/operators.h), with arrays in its memory. An
// operator is called with a context of its device (device/context.h); workers are one of the CPU.
//
// Conventions. T is the type of activations and parameters (float, bf16, fp16, double), A = acc_t<T> that of
// sums, statistics, logits and gradients of parameters. Arrays are dense and row-major; shapes stand at each
// function. Rows are tokens, M of them; B sequences of S tokens make M = B·S. "Adds" means that the result is
// added to what the array holds; otherwise it is overwritten. Gradients are named after what they belong to:
// dx is dLoss/dx. Sizes are positive. Each operator's file has forward beside backward and says what it
// computes.
//
// Thread safety: as Workers; the table itself is constant. Results do not depend on the number of workers.
#pragma once

#include <cstdint>

#include "base/fp16.h"
#include "base/round.h"
#include "device/operator.h"
#include "ops/optimizer.h"
#include "ops/philox.h"

namespace loom::ops {

enum class Activation { gelu_tanh, gelu_erf, relu, silu, tanh };

/// Which elements a dropout drops. Element i of an array is element `first + i` of the same array of the
/// global batch, so that masks do not depend on who holds which samples.
struct Dropout {
  float probability = 0;  // in [0, 1); kept elements are scaled by 1 / (1 - probability)
  RandomKey key;
  uint64_t first = 0;
};

/// Rows of the embedding, and columns of the logits, that a rank holds: tokens [first, first + count).
struct VocabularyRange {
  int64_t first = 0;
  int64_t count = 0;
  bool has(int32_t token) const { return token >= first && token < first + count; }
};

/// Elements from row to row of a GPU's logits, at most: whole packs of 16 bytes.
constexpr int64_t padded_logits(int64_t columns) { return round_up(columns, 8); }

/// Self-attention of `heads` heads of queries, of size `head_size`, over sequences of `tokens` tokens. As
/// many queries' heads as there are for each read one head of keys and values, neighbours the same one
/// (Ainslie et al., "GQA", 2023).
struct AttentionShape {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t key_value_heads = 0;  // divides `heads`; 0: as many
  int64_t head_size = 0;
  float scale = 0;     // of the scores, 1 / √head_size as a rule
  Dropout dropout;     // of the probabilities, an array [global batch, all heads, tokens, tokens]
  bool causal = true;  // a query sees the keys up to its own; else all of its sequence
  int64_t window = 0;  // it sees only so many of them, itself included; 0: all. Causal only
  bool alibi = false;  // scores get slope · (key - query), with a slope for each head
  // [batch]: keys from there on are padding, which nobody sees where attention is not causal; null: none is.
  const int32_t* lengths = nullptr;
  // [batch, tokens]: where, in its sequence, the text of each token begins, and behind which token it ends. A
  // token sees its own text only. Null: a sequence is one text. Causal only.
  const int32_t *begins = nullptr, *ends = nullptr;
  // The heads here among those of the model, where they are not all of them.
  int64_t first_head = 0;
  int64_t all_heads = 0;  // 0: `heads`
  int64_t key_heads() const { return key_value_heads > 0 ? key_value_heads : heads; }
  int64_t width() const { return heads * head_size; }
  int64_t key_width() const { return key_heads() * head_size; }
  int64_t qkv_width() const { return width() + 2 * key_width(); }
};

/// Turns pairs slower, so that a model reads longer sequences than those that it first learned from: all
/// pairs `factor` times, or, with `context`, those that turn less than `low` times in so many tokens. Pairs
/// that turn more than `high` times stay as they are then, and those between become a mixture (Llama 3.1,
/// 2024).
struct RotaryScaling {
  float factor = 1;
  int64_t context = 0;
  float low = 1, high = 4;
  bool operator==(const RotaryScaling&) const = default;
};

/// Rotary position embedding (Su et al., 2021) of the first `dims` elements of each head of q and k: pair p
/// of them turns by position · base^(-2p / dims), slower where `scaling` says so.
struct RotaryShape {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t heads = 0;            // of queries
  int64_t key_value_heads = 0;  // 0: as many
  int64_t head_size = 0;
  int64_t dims = 0;          // even, at most head_size
  bool interleaved = false;  // pairs are elements 2p and 2p + 1; else p and p + dims/2
  float base = 10000;
  RotaryScaling scaling = {};
  int64_t first_position = 0;  // of the first token of each sequence
  /// Heads that turn: the queries', and those of keys behind them. Those of values follow.
  int64_t turned_heads() const { return heads + (key_value_heads > 0 ? key_value_heads : heads); }
  int64_t qkv_width() const { return (2 * turned_heads() - heads) * head_size; }
};

/// Heads of queries and keys in rows of q, k and v side by side, as AttentionShape has them.
struct HeadRows {
  int64_t rows = 0;  // M
  int64_t heads = 0, key_value_heads = 0, head_size = 0;
  int64_t normed_heads() const { return heads + key_value_heads; }  // of a row: queries, then keys
  int64_t stride() const { return (heads + 2 * key_value_heads) * head_size; }
};

template <typename T>
struct Operators {
  using A = acc_t<T>;
  template <typename Signature>
  using Operator = device::Operator<Signature>;
  const char* name;  // of the instruction set: name_of()

  // --- embedding.cc: y[M, C] = wte[token, C] + wpe[position, C] + type[C]. wpe and type may be null. Where
  // `position` is null a row has position row % tokens. A position may be -1, the row before wpe: that of
  // padding, which trains neither its token nor its position.
  Operator<void(const int32_t* token, const int32_t* position, const T* wte, const T* wpe, const T* type,
                T* y, int64_t rows, int64_t tokens, int64_t vocabulary, int64_t width)>
      embedding_forward;
  /// Adds to dwte[vocabulary, C], dwpe[tokens, C] and dtype[C].
  Operator<void(const int32_t* token, const int32_t* position, const T* dy, A* dwte, A* dwpe, A* dtype,
                int64_t rows, int64_t tokens, int64_t vocabulary, int64_t width)>
      embedding_backward;

  // --- norm.cc: y[M, C] = (x - mean) · rstd · weight + bias. Where bias, mean and dbias are null, the norm
  // is by the root of the mean square: mean is 0, and rstd 1 / √(avg(x²) + epsilon) (Zhang and Sennrich,
  // "Root Mean Square Layer Normalization", 2019).
  Operator<void(const T* x, const T* weight, const T* bias, T* y, A* mean, A* rstd, int64_t rows,
                int64_t width, float epsilon)>
      norm_forward;
  /// Adds to dx, or overwrites it, and then dx may be dy; overwrites dweight[C], dbias[C].
  Operator<void(const T* x, const T* weight, const A* mean, const A* rstd, const T* dy, T* dx, bool add_to_dx,
                A* dweight, A* dbias, int64_t rows, int64_t width)>
      norm_backward;

  /// The RMS norm of each head of queries and keys in qkv[M, stride], to y of that shape, which gets the
  /// values as they are. weight[2, head_size] are the queries' and the keys'; rstd has M · normed_heads, in
  /// an order of the table's own.
  Operator<void(const HeadRows&, const T* qkv, const T* weight, T* y, A* rstd, float epsilon)>
      head_norm_forward;
  /// d[M, stride], dy, becomes dqkv; overwrites dweight[2, head_size].
  Operator<void(const HeadRows&, const T* qkv, const T* weight, const A* rstd, T* d, A* dweight)>
      head_norm_backward;

  // --- linear.cc: y[M, N] = x[M, K] · w[K, N] + bias[N]. bias may be null.
  Operator<void(const T* x, const T* w, const T* bias, T* y, int64_t rows, int64_t in, int64_t out)>
      linear_forward;
  /// dx[M, K] = dy · wᵀ.
  Operator<void(const T* dy, const T* w, T* dx, int64_t rows, int64_t in, int64_t out)> linear_backward_input;
  /// dw[K, N] = xᵀ · dy and dbias[N] = Σ dy (unless null).
  Operator<void(const T* x, const T* dy, A* dw, A* dbias, int64_t rows, int64_t in, int64_t out)>
      linear_backward_weight;

  /// logits[M, V] = x[M, C] · w[V, C]ᵀ + bias[V]. bias may be null. Type and strides of logits are the
  /// table's own: A in the CPU's, in memory for M · V of them; T in a GPU's, in memory for M ·
  /// padded_logits(V) of T, or for M · V of A.
  Operator<void(const T* x, const T* w, const T* bias, void* logits, int64_t rows, int64_t width,
                int64_t vocabulary)>
      head_forward;
  /// dx = dlogits · w; dw[V, C] = dlogitsᵀ · x and dbias[V] = Σ dlogits (unless null), or `add` to both.
  Operator<void(const void* dlogits, const T* x, const T* w, T* dx, A* dw, A* dbias, bool add, int64_t rows,
                int64_t width, int64_t vocabulary)>
      head_backward;
  Operator<void(const void* logits, A* to, int64_t n)> read_logits;  // of one row

  // --- cross_entropy.cc: loss[m] = log Σ exp(logits[m]) - logits[m, target[m]], 0 where target is negative.
  /// logits[M, V] becomes dlogits · scale in the same place.
  Operator<void(void* logits, const int32_t* target, double* loss, int64_t rows, int64_t vocabulary, A scale)>
      cross_entropy;

  // --- split_embedding.cc: y[M, C] = wte[token - first, C] for tokens of `own`, else 0; wte[count, C].
  Operator<void(const int32_t* token, const T* wte, VocabularyRange own, T* y, int64_t rows, int64_t width)>
      split_embedding_forward;
  /// Adds to dwte[count, C]; nothing of rows whose position is negative. `position` may be null.
  Operator<void(const int32_t* token, const int32_t* position, const T* dy, VocabularyRange own, A* dwte,
                int64_t rows, int64_t width)>
      split_embedding_backward;

  /// y[M, C] = x + wpe[position, C], the position as above, but (first + row) % tokens where `position` is
  /// null. wpe may be null.
  Operator<void(const T* x, const T* wpe, const int32_t* position, T* y, int64_t first, int64_t rows,
                int64_t tokens, int64_t width)>
      position_forward;
  /// Adds to dwpe[tokens, C].
  Operator<void(const T* dy, const int32_t* position, A* dwpe, int64_t first, int64_t rows, int64_t tokens,
                int64_t width)>
      position_backward;

  // --- split_cross_entropy.cc: cross_entropy of logits[M, V] of which a rank has the columns `own`.
  /// logits[M, count] becomes exponentials; numbers[M, 3] is what finish() of the same table wants.
  Operator<void(void* logits, const int32_t* target, VocabularyRange own, A* numbers, int64_t rows)>
      split_cross_entropy_begin;
  /// From numbers[ranks, M, 3]: loss[M], the same on all ranks, and logits[M, count] becomes
  /// dlogits · scale.
  Operator<void(void* logits, const int32_t* target, VocabularyRange own, const A* numbers, int ranks,
                int rank, double* loss, int64_t rows, A scale)>
      split_cross_entropy_finish;

  // --- activation.cc: y[n] = activation(x[n])
  Operator<void(Activation, const T* x, T* y, int64_t n)> activation_forward;
  /// dx[n] = activation'(x[n]) · dy[n]; dx may be dy.
  Operator<void(Activation, const T* x, const T* dy, T* dx, int64_t n)> activation_backward;
  /// y[M, F] = activation(x[M, :F]) · x[M, F:] of x[M, 2F] (Shazeer, "GLU Variants Improve Transformer",
  /// 2020).
  Operator<void(Activation, const T* x, T* y, int64_t rows, int64_t width)> gated_forward;
  /// dx[M, 2F] from dy[M, F].
  Operator<void(Activation, const T* x, const T* dy, T* dx, int64_t rows, int64_t width)> gated_backward;

  // --- attention.cc: out[B, S, width] from qkv[B, S, qkv_width]: q, k and v side by side, heads are slices
  // of each.
  /// lse[B, heads, S] are the rows' log Σ exp(scores).
  Operator<void(const AttentionShape&, const T* qkv, T* out, A* lse)> attention_forward;
  Operator<void(const AttentionShape&, const T* qkv, const T* out, const A* lse, const T* dout, T* dqkv)>
      attention_backward;
  /// One query, of the token at `position` of one sequence, with the keys and values up to it: out[width]
  /// from q[width] and keys, values [position + 1, key_width]. shape.batch and shape.tokens are 1.
  Operator<void(const AttentionShape&, const T* q, const T* keys, const T* values, int64_t position, T* out)>
      attention_step;

  // --- rotary.cc: turns q and k of qkv[B, S, qkv_width] in place; back again, which is its gradient, with
  // `back`.
  Operator<void(const RotaryShape&, T* qkv, bool back)> rotary;

  // --- dropout.cc: y[n] = x[n] · mask / (1 - p); its own gradient, too. y may be x.
  Operator<void(const Dropout&, const T* x, T* y, int64_t n)> dropout;
  /// y[M, C] = residual + dropout(x + bias[C]). bias may be null, y may be residual or x.
  Operator<void(const Dropout&, const T* residual, const T* x, const T* bias, T* y, int64_t rows,
                int64_t width)>
      add_dropout;

  // --- normal.cc: y[n] of mean 0 and that deviation, y[i] a function of key and first + i alone; the same
  // bits in every table.
  Operator<void(RandomKey key, uint64_t first, float deviation, float* y, int64_t n)> normal;

  // --- rows.cc: y[M, C] = x[row, C] of x[of, C]; zeros where `row` is negative.
  Operator<void(const T* x, int64_t of, const int32_t* row, T* y, int64_t rows, int64_t width)> gather_rows;
  Operator<void(void* to, int64_t bytes)> clear;
  Operator<void(const void* from, void* to, int64_t bytes)> copy;  // they do not overlap
  Operator<void(const double* x, double* sum, int64_t n)> sum;     // *sum = Σ x in order; `sum` may be x
  /// Adds to *right the rows of logits scores[M, classes] whose target has the largest score, of equals the
  /// first.
  Operator<void(const void* scores, const int32_t* target, double* right, int64_t rows, int64_t classes)>
      count_right;

  // --- elementwise.cc
  Operator<void(const A* a, const A* b, A* sum, int64_t n)> add;  // sum may be a or b
  Operator<void(const A* from, T* to, int64_t n)> convert;
  /// chunk[i] = Σ x² over elements [i·size, min((i+1)·size, n)), in fp64.
  Operator<void(const A* x, int64_t n, int64_t size, double* chunk)> sum_of_squares;

  // --- adamw.cc: the optimizer's kernel, with its slots. Gradient, master and slots have n elements.
  /// `parameter` gets the rounded master and may be null, or the same as master where T is A.
  Operator<void(const AdamW&, const A* gradient, A* master, Slots<A> slots, T* parameter, int64_t n)> update;
};

/// For T = float, bf16, fp16 and double (double: for tests, compiled for the least common instruction set
/// only).
template <typename T>
const Operators<T>& operators();

}  // namespace loom::ops
