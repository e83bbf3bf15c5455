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

template <typename T>
void forward(Workers& workers, Activation activation, const T* x, T* y, int64_t n) {
  using A = acc_t<T>;
  switch (activation) {
    case Activation::gelu_tanh: return forward_of<GeluTanh<A>>(workers, x, y, n);
    case Activation::gelu_erf: return forward_of<GeluErf<A>>(workers, x, y, n);
    case Activation::relu: return forward_of<Relu<A>>(workers, x, y, n);
    case Activation::tanh: return forward_of<Tanh<A>>(workers, x, y, n);
  }
}

template <typename T>
void backward(Workers& workers, Activation activation, const T* x, const T* dy, T* dx, int64_t n) {
  using A = acc_t<T>;
  switch (activation) {
    case Activation::gelu_tanh: return backward_of<GeluTanh<A>>(workers, x, dy, dx, n);
    case Activation::gelu_erf: return backward_of<GeluErf<A>>(workers, x, dy, dx, n);
    case Activation::relu: return backward_of<Relu<A>>(workers, x, dy, dx, n);
    case Activation::tanh: return backward_of<Tanh<A>>(workers, x, dy, dx, n);
  }
}

}  // namespace

template <typename T>
void add_activation(Operators<T>& table) {
  table.activation_forward = forward<T>;
  table.activation_backward = backward<T>;
}
LOOM_FOR_EVERY_TYPE(add_activation)

}  // namespace loom::ops::LOOM_ISA
