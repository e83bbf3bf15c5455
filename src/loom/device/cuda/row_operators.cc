// Operators on rows: norms, embeddings, cross-entropy, rotary.
#include "device/cuda/kernels/cross_entropy.h"
#include "device/cuda/kernels/embedding_gradient.h"
#include "device/cuda/kernels/gather_rows.h"
#include "device/cuda/kernels/norm.h"
#include "device/cuda/kernels/rotary.h"
#include "device/cuda/kernels/split_cross_entropy.h"
#include "device/cuda/operator_launches.h"
#include "device/cuda/operators.h"

namespace loom::cuda {
namespace {

/// Whether the kernels take norms of that width; if not, the queue keeps why.
bool takes_norm(Compute& compute, int64_t width) {
  const Status status = check_sizes(width, 0);
  if (status.ok()) return true;
  compute.refuse(status);
  return false;
}

template <typename T>
void norm_forward(Compute& compute, const T* x, const T* weight, const T* bias, T* y, float* mean,
                  float* rstd, int64_t rows, int64_t width, float epsilon) {
  if (takes_norm(compute, width))
    compute.launch(kernel_of<T>("norm_forward"),
                   NormForwardArguments<T>{x, weight, bias, y, mean, rstd, rows, width, epsilon});
}

template <typename T>
void norm_of_sum(Compute& compute, const ops::Dropout& dropout, const T* residual, const T* x, const T* added,
                 T* sum, const T* weight, const T* bias, T* y, float* mean, float* rstd, int64_t rows,
                 int64_t width, float epsilon) {
  if (takes_norm(compute, width))
    compute.launch(kernel_of<T>("norm_forward"),
                   NormForwardArguments<T>{x, weight, bias, y, mean, rstd, rows, width, epsilon, residual,
                                           added, sum, DropoutMask(dropout)});
}

template <typename T>
void queue_norm_backward(Compute& compute, NormBackwardArguments<T> arguments, float* dweight, float* dbias) {
  const int64_t width = arguments.width;
  if (!takes_norm(compute, width)) return;
  arguments.partial = compute.scratch<float>(arguments.parts() * arguments.parameters() * width);
  if (arguments.partial == nullptr) return;
  compute.launch(kernel_of<T>(width <= kNarrowNorm ? "norm_backward" : "norm_backward_wide"), arguments);
  compute.launch("loom_fold", arguments.fold(dweight, dbias));
}

template <typename T>
void norm_backward(Compute& compute, const T* x, const T* weight, const float* mean, const float* rstd,
                   const T* dy, T* dx, bool add_to_dx, float* dweight, float* dbias, int64_t rows,
                   int64_t width) {
  queue_norm_backward(
      compute, NormBackwardArguments<T>{x, weight, mean, rstd, dy, dx, nullptr, rows, width, add_to_dx},
      dweight, dbias);
}

template <typename T>
void norm_backward_dropout(Compute& compute, const ops::Dropout& dropout, const T* x, const T* weight,
                           const float* mean, const float* rstd, const T* dy, T* dx, bool add_to_dx,
                           float* dweight, float* dbias, T* masked, int64_t rows, int64_t width) {
  queue_norm_backward(compute,
                      NormBackwardArguments<T>{x, weight, mean, rstd, dy, dx, nullptr, rows, width, add_to_dx,
                                               masked, DropoutMask(dropout)},
                      dweight, dbias);
}

/// Heads of queries, or of keys: body(first element of a row's, heads, rows before in rstd, element of
/// weight).
template <typename Body>
void for_kinds(const ops::HeadRows& s, Body&& body) {
  body(0, s.heads, 0, 0);
  body(s.heads * s.head_size, s.key_value_heads, s.rows * s.heads, s.head_size);
}

/// rstd has all heads of queries first, and then those of keys.
template <typename T>
void head_norm_forward(Compute& compute, const ops::HeadRows& s, const T* qkv, const T* weight, T* y,
                       float* rstd, float epsilon) {
  if (!takes_norm(compute, s.head_size)) return;
  compute.copy(y, qkv, s.rows * s.stride() * static_cast<int64_t>(sizeof(T)));  // of which the values stay
  for_kinds(s, [&](int64_t first, int64_t heads, int64_t before, int64_t of_kind) {
    NormForwardArguments<T> arguments{qkv + first,   weight + of_kind, nullptr,     y + first, nullptr,
                                      rstd + before, s.rows * heads,   s.head_size, epsilon};
    arguments.places = {static_cast<unsigned>(heads), s.stride()};
    compute.launch(kernel_of<T>("norm_forward"), arguments);
  });
}

template <typename T>
void head_norm_backward(Compute& compute, const ops::HeadRows& s, const T* qkv, const T* weight,
                        const float* rstd, T* d, float* dweight) {
  for_kinds(s, [&](int64_t first, int64_t heads, int64_t before, int64_t of_kind) {
    NormBackwardArguments<T> arguments{
        qkv + first, weight + of_kind, nullptr,        rstd + before, d + first,
        d + first,   nullptr,          s.rows * heads, s.head_size,   false};
    arguments.places = {static_cast<unsigned>(heads), s.stride()};
    queue_norm_backward(compute, arguments, dweight + of_kind, static_cast<float*>(nullptr));
  });
}

/// Positions of a batch's rows, and where the kernels' table of them begins.
template <typename E>
std::pair<Positions, E*> positions_in(E* table, const int32_t* position, int64_t first, int64_t tokens,
                                      int64_t width) {
  const Positions positions{position, first, tokens};
  return {positions, table == nullptr ? nullptr : table - positions.rows_before() * width};
}

template <typename T>
void embed(Compute& compute, const int32_t* token, const int32_t* position, const T* wte, const T* wpe,
           const T* type, T* y, int64_t rows, int64_t tokens, int64_t vocabulary, int64_t width) {
  const auto [positions, table] = positions_in(wpe, position, 0, tokens, width);
  compute.launch(kernel_of<T>("embedding"),
                 EmbeddingArguments<T>{token, wte, table, type, y, rows, width, {0, vocabulary}, positions});
}

template <typename T>
void embed_part(Compute& compute, const int32_t* token, const T* wte, ops::VocabularyRange own, T* y,
                int64_t rows, int64_t width) {
  compute.launch(kernel_of<T>("embedding"),
                 EmbeddingArguments<T>{token, wte, nullptr, nullptr, y, rows, width, own, {}});
}

/// Scratch memory of the gradient: two orders of the rows, which the digits' passes write in turn, places and
/// sums.
template <typename T>
void embed_part_back(Compute& compute, const int32_t* token, const int32_t* position, const T* dy,
                     ops::VocabularyRange own, float* dwte, int64_t rows, int64_t width) {
  const RowTokens tokens{token, position, own};
  TokenOrderArguments order{tokens, nullptr, nullptr, nullptr, rows, 0};
  EmbeddingGradientArguments<T> gradient{tokens, nullptr, dy, dwte, nullptr, rows, width};
  const int64_t places = kDigits * order.tiles(), sums = gradient.pieces() * 2 * width;
  const int64_t rows_up = ceil_div(rows, 4) * 4, places_up = ceil_div(places, 4) * 4;  // sums begin aligned
  int32_t* const scratch = compute.scratch<int32_t>(2 * rows_up + places_up + sums);
  if (scratch == nullptr) return;
  int32_t* const orders[] = {scratch, scratch + rows_up};
  order.places = scratch + 2 * rows_up;
  for (order.digit = 0; order.digit < TokenOrderArguments::digits(own); ++order.digit) {
    order.after = orders[order.digit % 2];
    compute.launch("loom_count_digits", order.shape_of_tiles(), order);
    compute.launch("loom_find_places", order.shape_of_scan(), order);
    compute.launch("loom_place_rows", order.shape_of_tiles(), order);
    order.before = order.after;
  }
  gradient.order = order.after;
  gradient.sums = reinterpret_cast<float*>(order.places + places_up);
  compute.launch(kernel_of<T>("embedding_gradient"), gradient);
  compute.launch(kernel_of<T>("embedding_gradient_runs"), gradient);
}

template <typename T>
void add_position(Compute& compute, const T* x, const T* wpe, const int32_t* position, T* y, int64_t first,
                  int64_t rows, int64_t tokens, int64_t width) {
  if (wpe == nullptr) {
    if (y != x) compute.copy(y, x, rows * width * static_cast<int64_t>(sizeof(T)));
    return;
  }
  const auto [positions, table] = positions_in(wpe, position, first, tokens, width);
  compute.launch(kernel_of<T>("position"), PositionArguments<T>{x, table, y, rows, width, width, positions});
}

/// Positions that follow no rule are sorted like tokens, which they are for this gradient. One position for
/// all rows has too few elements for a block of each.
template <typename T>
void add_position_back(Compute& compute, const T* dy, const int32_t* position, float* dwpe, int64_t first,
                       int64_t rows, int64_t tokens, int64_t width) {
  if (position != nullptr)
    return embed_part_back<T>(compute, position, nullptr, dy, {0, tokens}, dwpe, rows, width);
  if (tokens == 1) return queue_column_sums(compute, dy, dwpe, true, rows, width, width);
  compute.launch(kernel_of<T>("position_gradient"),
                 PositionGradientArguments<T>{dy, dwpe, first, rows, tokens, width});
}

template <typename T>
void embed_back(Compute& compute, const int32_t* token, const int32_t* position, const T* dy, float* dwte,
                float* dwpe, float* dtype, int64_t rows, int64_t tokens, int64_t vocabulary, int64_t width) {
  embed_part_back<T>(compute, token, position, dy, {0, vocabulary}, dwte, rows, width);
  if (dwpe != nullptr) add_position_back(compute, dy, position, dwpe, 0, rows, tokens, width);
  if (dtype != nullptr) add_position_back<T>(compute, dy, nullptr, dtype, 0, rows, 1, width);
}

template <typename T>
void gather(Compute& compute, const T* x, int64_t of, const int32_t* row, T* y, int64_t rows, int64_t width) {
  compute.launch(kernel_of<T>("gather_rows"), GatherRowsArguments<T>{x, row, y, of, rows, width});
}

template <typename T>
void turn(Compute& compute, const ops::RotaryShape& shape, T* qkv, bool back) {
  float* const turns = compute.scratch<float>(shape.tokens * shape.dims);
  if (turns == nullptr) return;
  compute.launch("loom_rotary_turns", RotaryTurnsArguments{turns, shape.tokens, shape.dims,
                                                           shape.first_position, shape.base, shape.scaling});
  compute.launch(
      kernel_of<T>("rotary"),
      RotaryArguments<T>{qkv, turns, shape.batch * shape.tokens, shape.tokens, shape.qkv_width(),
                         shape.turned_heads(), shape.head_size, shape.dims, shape.interleaved, back});
}

template <typename T>
void loss_of(Compute& compute, void* logits, const int32_t* target, double* loss, int64_t rows,
             int64_t vocabulary, float scale) {
  compute.launch(kernel_of<T>("cross_entropy"),
                 CrossEntropyArguments<T>{static_cast<T*>(logits), target, loss, rows, vocabulary,
                                          logits_stride<T>(vocabulary), scale});
}

template <typename T>
void part_of_loss(Compute& compute, void* logits, const int32_t* target, ops::VocabularyRange own,
                  float* numbers, int64_t rows) {
  compute.launch(kernel_of<T>("split_cross_entropy_begin"),
                 SplitCrossEntropyBeginArguments<T>{static_cast<const T*>(logits), target, numbers, rows,
                                                    logits_stride<T>(own.count), own});
}

template <typename T>
void loss_of_parts(Compute& compute, void* logits, const int32_t* target, ops::VocabularyRange own,
                   const float* numbers, int ranks, int, double* loss, int64_t rows, float scale) {
  compute.launch(kernel_of<T>("split_cross_entropy_finish"),
                 SplitCrossEntropyFinishArguments<T>{static_cast<T*>(logits), target, numbers, loss, rows,
                                                     logits_stride<T>(own.count), own, ranks, scale});
}

template <typename T>
void right_of(Compute& compute, const void* scores, const int32_t* target, double* right, int64_t rows,
              int64_t classes) {
  compute.launch(kernel_of<T>("count_right"),
                 CountRightArguments<T>{static_cast<const T*>(scores), target, right, rows, classes,
                                        logits_stride<T>(classes)});
}

}  // namespace

template <typename T>
void add_fused_rows(ops::FusedOperators<T>& table) {
  table.residual_norm = norm_of_sum<T>;
  table.norm_gradient_dropout = norm_backward_dropout<T>;
}
LOOM_FOR_EVERY_GPU_TYPE(add_fused_rows, FusedOperators)

template <typename T>
void add_rows(ops::Operators<T>& table) {
  table.norm_forward = norm_forward<T>;
  table.norm_backward = norm_backward<T>;
  table.head_norm_forward = head_norm_forward<T>;
  table.head_norm_backward = head_norm_backward<T>;
  table.embedding_forward = embed<T>;
  table.embedding_backward = embed_back<T>;
  table.split_embedding_forward = embed_part<T>;
  table.split_embedding_backward = embed_part_back<T>;
  table.position_forward = add_position<T>;
  table.position_backward = add_position_back<T>;
  table.gather_rows = gather<T>;
  table.rotary = turn<T>;
  table.cross_entropy = loss_of<T>;
  table.split_cross_entropy_begin = part_of_loss<T>;
  table.split_cross_entropy_finish = loss_of_parts<T>;
  table.count_right = right_of<T>;
}
LOOM_FOR_EVERY_GPU_TYPE(add_rows, Operators)

}  // namespace loom::cuda
