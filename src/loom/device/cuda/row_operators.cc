// Operators on rows: norms, embeddings, cross-entropy, rotary.
#include "device/cuda/kernels/cross_entropy.h"
#include "device/cuda/kernels/embedding_gradient.h"
#include "device/cuda/kernels/layer_norm.h"
#include "device/cuda/kernels/rotary.h"
#include "device/cuda/kernels/split_cross_entropy.h"
#include "device/cuda/operator_launches.h"

namespace loom::cuda {
namespace {

/// Whether the kernels take norms of that width; if not, the queue keeps why.
bool takes_norm(Compute& compute, int64_t width) {
  if (width <= kLongestNorm) return true;
  compute.refuse(
      fail(Code::unsupported, "layer norms of a GPU have at most {} columns, not {}", kLongestNorm, width));
  return false;
}

template <typename T>
void norm_forward(Compute& compute, const T* x, const T* weight, const T* bias, T* y, float* mean,
                  float* rstd, int64_t rows, int64_t width, float epsilon) {
  if (takes_norm(compute, width))
    compute.launch(kernel_of<T>("layer_norm_forward"),
                   LayerNormForwardArguments<T>{x, weight, bias, y, mean, rstd, rows, width, epsilon});
}

template <typename T>
void norm_backward(Compute& compute, const T* x, const T* weight, const float* mean, const float* rstd,
                   const T* dy, T* dx, bool add_to_dx, float* dweight, float* dbias, int64_t rows,
                   int64_t width) {
  if (!takes_norm(compute, width)) return;
  LayerNormBackwardArguments<T> arguments{x, weight, mean, rstd, dy, dx, nullptr, rows, width, add_to_dx};
  arguments.partial = compute.scratch<float>(arguments.parts() * 2 * width);
  if (arguments.partial == nullptr) return;
  compute.launch(kernel_of<T>(width <= kNarrowNorm ? "layer_norm_backward" : "layer_norm_backward_wide"),
                 arguments);
  compute.launch("loom_fold", arguments.fold(dweight, dbias));
}

bool takes_positions(Compute& compute, const int32_t* position) {
  if (position == nullptr) return true;
  compute.refuse(fail(Code::unsupported, "padding inside sequences is not trained on a GPU"));
  return false;
}

template <typename T>
void embedding_of_part(Compute& compute, const int32_t* token, const T* wte, ops::VocabularyRange own, T* y,
                       int64_t rows, int64_t width) {
  compute.launch(kernel_of<T>("embedding"),
                 EmbeddingArguments<T>{token, wte, nullptr, nullptr, y, rows, 1, width, own});
}

/// Scratch memory of the gradient: two orders of the rows, which the digits' passes write in turn, places and
/// sums.
template <typename T>
void embedding_of_part_back(Compute& compute, const int32_t* token, const int32_t* position, const T* dy,
                            ops::VocabularyRange own, float* dwte, int64_t rows, int64_t width) {
  if (!takes_positions(compute, position)) return;
  TokenOrderArguments order{token, nullptr, nullptr, nullptr, rows, own, 0};
  EmbeddingGradientArguments<T> gradient{token, nullptr, dy, dwte, nullptr, rows, width, own};
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
void positions(Compute& compute, const T* x, const T* wpe, const int32_t* position, T* y, int64_t first,
               int64_t rows, int64_t tokens, int64_t width) {
  if (wpe == nullptr) {
    if (y != x) compute.queue().copy(y, x, rows * width * static_cast<int64_t>(sizeof(T)));
    return;
  }
  if (!takes_positions(compute, position)) return;
  compute.launch(kernel_of<T>("position"), PositionArguments<T>{x, wpe, y, first, rows, tokens, width});
}

template <typename T>
void positions_back(Compute& compute, const T* dy, const int32_t* position, float* dwpe, int64_t first,
                    int64_t rows, int64_t tokens, int64_t width) {
  if (!takes_positions(compute, position)) return;
  compute.launch(kernel_of<T>("position_gradient"),
                 PositionGradientArguments<T>{dy, dwpe, first, rows, tokens, width});
}

template <typename T>
void turn(Compute& compute, const ops::RotaryShape& shape, T* qkv, bool back) {
  float* const turns = compute.scratch<float>(shape.tokens * shape.dims);
  if (turns == nullptr) return;
  compute.launch("loom_rotary_turns",
                 RotaryTurnsArguments{turns, shape.tokens, shape.dims, shape.first_position, shape.base});
  compute.launch(kernel_of<T>("rotary"),
                 RotaryArguments<T>{qkv, turns, shape.batch * shape.tokens, shape.tokens, shape.heads,
                                    shape.head_size, shape.dims, shape.interleaved, back});
}

void loss_of(Compute& compute, float* logits, const int32_t* target, double* loss, int64_t rows,
             int64_t vocabulary, float scale) {
  compute.launch("loom_cross_entropy_fp32",
                 CrossEntropyArguments<float>{logits, target, loss, rows, vocabulary, vocabulary, scale});
}

void part_of_loss(Compute& compute, float* logits, const int32_t* target, ops::VocabularyRange own,
                  float* numbers, int64_t rows) {
  compute.launch("loom_split_cross_entropy_begin_fp32",
                 SplitCrossEntropyBeginArguments<float>{logits, target, numbers, rows, own.count, own});
}

void loss_of_parts(Compute& compute, float* logits, const int32_t* target, ops::VocabularyRange own,
                   const float* numbers, int ranks, int, double* loss, int64_t rows, float scale) {
  compute.launch("loom_split_cross_entropy_finish_fp32",
                 SplitCrossEntropyFinishArguments<float>{logits, target, numbers, loss, rows, own.count, own,
                                                         ranks, scale});
}

}  // namespace

template <typename T>
void add_rows(ops::Operators<T>& table) {
  table.layer_norm_forward = norm_forward<T>;
  table.layer_norm_backward = norm_backward<T>;
  table.split_embedding_forward = embedding_of_part<T>;
  table.split_embedding_backward = embedding_of_part_back<T>;
  table.position_forward = positions<T>;
  table.position_backward = positions_back<T>;
  table.rotary = turn<T>;
  if constexpr (std::is_same_v<T, float>) {
    table.cross_entropy = loss_of;
    table.split_cross_entropy_begin = part_of_loss;
    table.split_cross_entropy_finish = loss_of_parts;
  }
}
LOOM_FOR_EVERY_GPU_TYPE(add_rows)

}  // namespace loom::cuda
