// Activations of the feed-forward layer and of poolers; the functions are in activations.h.
#include "ops/activations.h"
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename F, typename T>
void forward_of(Workers& workers, const T* x, T* y, int64_t n) {
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) store(y[i], F::value(load(x[i])));
  });
}

template <typename F, typename T>
void backward_of(Workers& workers, const T* x, const T* dy, T* dx, int64_t n) {
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) store(dx[i], F::slope(load(x[i])) * load(dy[i]));
  });
}

template <typename F, typename T>
void gated_forward_of(Workers& workers, const T* x, T* y, int64_t rows, int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const T *gate = x + row * 2 * width, *up = gate + width;
      T* const to = y + row * width;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) store(to[c], F::value(load(gate[c])) * load(up[c]));
    }
  });
}

template <typename F, typename T>
void gated_backward_of(Workers& workers, const T* x, const T* dy, T* dx, int64_t rows, int64_t width) {
  for_ranges(workers, rows, rows_per_piece(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const T *gate = x + row * 2 * width, *up = gate + width, *from = dy + row * width;
      T *const dgate = dx + row * 2 * width, *const dup = dgate + width;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const auto g = load(gate[c]), d = load(from[c]);
        store(dgate[c], F::slope(g) * load(up[c]) * d);
        store(dup[c], F::value(g) * d);
      }
    }
  });
}

/// call(F) with the functions of that activation.
template <typename A, typename Call>
void with(Activation activation, const Call& call) {
  switch (activation) {
    case Activation::gelu_tanh: return call(GeluTanh<A>());
    case Activation::gelu_erf: return call(GeluErf<A>());
    case Activation::relu: return call(Relu<A>());
    case Activation::silu: return call(Silu<A>());
    case Activation::tanh: return call(Tanh<A>());
  }
}

template <typename T>
void forward(Workers& workers, Activation activation, const T* x, T* y, int64_t n) {
  with<acc_t<T>>(activation, [&]<typename F>(F) { forward_of<F>(workers, x, y, n); });
}

template <typename T>
void backward(Workers& workers, Activation activation, const T* x, const T* dy, T* dx, int64_t n) {
  with<acc_t<T>>(activation, [&]<typename F>(F) { backward_of<F>(workers, x, dy, dx, n); });
}

template <typename T>
void gated_forward(Workers& workers, Activation activation, const T* x, T* y, int64_t rows, int64_t width) {
  with<acc_t<T>>(activation, [&]<typename F>(F) { gated_forward_of<F>(workers, x, y, rows, width); });
}

template <typename T>
void gated_backward(Workers& workers, Activation activation, const T* x, const T* dy, T* dx, int64_t rows,
                    int64_t width) {
  with<acc_t<T>>(activation, [&]<typename F>(F) { gated_backward_of<F>(workers, x, dy, dx, rows, width); });
}

}  // namespace

template <typename T>
void add_activation(Operators<T>& table) {
  table.activation_forward = forward<T>;
  table.activation_backward = backward<T>;
  table.gated_forward = gated_forward<T>;
  table.gated_backward = gated_backward<T>;
}
LOOM_FOR_EVERY_TYPE(add_activation)

}  // namespace loom::ops::LOOM_ISA
