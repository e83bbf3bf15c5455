// The matrix products of training, as cuBLASLt takes them. Loom's arrays are row-major. A row-major [r, c] is
// a column-major [c, r] with the same leading dimension, so that the operands change places:
//
//   ours                      A (op)     B (op)          m, n, k          D        epilogue
//   y = x·W + b               W          x               out, rows, in    T        bias, or GELU with bias
//   dx = dy·Wᵀ                W (T)      dy              in, rows, out    T        GELU's derivative
//   dW = xᵀ·dy, db            dy         x (T)           out, in, rows    fp32     db: sums of A's rows
//   logits = x·Eᵀ + b         E (T)      x               V, rows, C       T        bias
//   dx = dlogits·E            E          dlogits         C, rows, V       T        none
//   dE (+)= dlogitsᵀ·x, db    x          dlogits (T)     C, V, rows       fp32     db: sums of B's columns
//
// Sums are in fp32. The GELU of an epilogue is the tanh form; the other activations are kernels. The
// pre-activation of the forward pass is kept in T, [rows, out] with a leading dimension that is a multiple
// of 8.
#pragma once

#include <compare>
#include <cstdint>

#include "base/fp16.h"

namespace loom::cuda {

enum class ElementType { fp32, bf16, fp16 };

template <typename T>
inline constexpr ElementType kElementType = ElementType::fp32;
template <>
inline constexpr ElementType kElementType<bf16> = ElementType::bf16;
template <>
inline constexpr ElementType kElementType<fp16> = ElementType::fp16;

inline int64_t size_of(ElementType type) { return type == ElementType::fp32 ? 4 : 2; }

/// An epilogue is done with a product. `bias` is added to each column of D, or it becomes sums over k: of A's
/// rows, or of B's columns.
enum class Epilogue { none, bias, gelu, gelu_bias, gelu_backward, sums_of_a, sums_of_b };

/// D[m, n] = op(A)·op(B), or that added to D; column-major. Types are A's and B's, and D's, which is the
/// bias's and the pre-activation's as well.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldd = 0, ld_pre = 0;  // ld_pre: of the pre-activation
  bool a_transposed = false, b_transposed = false, adds = false;
  ElementType inputs = ElementType::fp32, output = ElementType::fp32;
  Epilogue epilogue = Epilogue::none;

  auto operator<=>(const ProductShape&) const = default;
};

struct Product {
  ProductShape shape;
  const void *a = nullptr, *b = nullptr;
  void* d = nullptr;
  void* bias = nullptr;            // read, or written where sums go there
  void* pre_activation = nullptr;  // written by gelu and gelu_bias, read by gelu_backward
};

/// y[rows, out] = x[rows, in]·w[in, out] + bias[out]. bias may be null. With `pre_activation` [rows, ld_pre],
/// y is its GELU.
template <typename T>
Product linear_forward(const T* x, const T* w, const T* bias, T* y, int64_t rows, int64_t in, int64_t out,
                       T* pre_activation = nullptr, int64_t ld_pre = 0) {
  Product product{{out, rows, in, out, in, out, ld_pre}, w, x, y, const_cast<T*>(bias), pre_activation};
  product.shape.inputs = product.shape.output = kElementType<T>;
  if (pre_activation != nullptr)
    product.shape.epilogue = bias != nullptr ? Epilogue::gelu_bias : Epilogue::gelu;
  else if (bias != nullptr) product.shape.epilogue = Epilogue::bias;
  return product;
}

/// dx[rows, in] = dy[rows, out]·w[in, out]ᵀ; with `pre_activation` [rows, ld_pre], whose width is `in`, dx is
/// multiplied by the derivative of its GELU.
template <typename T>
Product linear_backward_input(const T* dy, const T* w, T* dx, int64_t rows, int64_t in, int64_t out,
                              const T* pre_activation = nullptr, int64_t ld_pre = 0) {
  Product product{{in, rows, out, out, out, in, ld_pre}, w, dy, dx, nullptr, const_cast<T*>(pre_activation)};
  product.shape.a_transposed = true;
  product.shape.inputs = product.shape.output = kElementType<T>;
  if (pre_activation != nullptr) product.shape.epilogue = Epilogue::gelu_backward;
  return product;
}

/// dw[in, out] = x[rows, in]ᵀ·dy[rows, out] and dbias[out] = Σ dy (unless null).
template <typename T>
Product linear_backward_weight(const T* x, const T* dy, float* dw, float* dbias, int64_t rows, int64_t in,
                               int64_t out) {
  Product product{{out, in, rows, out, in, out, 0}, dy, x, dw, dbias, nullptr};
  product.shape.b_transposed = true;
  product.shape.inputs = kElementType<T>;
  if (dbias != nullptr) product.shape.epilogue = Epilogue::sums_of_a;
  return product;
}

/// logits[rows, ld] = x[rows, width]·w[vocabulary, width]ᵀ + bias[vocabulary]. bias may be null; ld ≥
/// vocabulary.
template <typename T>
Product head_forward(const T* x, const T* w, const T* bias, T* logits, int64_t rows, int64_t width,
                     int64_t vocabulary, int64_t ld) {
  Product product{
      {vocabulary, rows, width, width, width, ld, 0}, w, x, logits, const_cast<T*>(bias), nullptr};
  product.shape.a_transposed = true;
  product.shape.inputs = product.shape.output = kElementType<T>;
  if (bias != nullptr) product.shape.epilogue = Epilogue::bias;
  return product;
}

/// dx[rows, width] = dlogits[rows, ld]·w[vocabulary, width].
template <typename T>
Product head_backward_input(const T* dlogits, const T* w, T* dx, int64_t rows, int64_t width,
                            int64_t vocabulary, int64_t ld) {
  Product product{{width, rows, vocabulary, width, ld, width, 0}, w, dlogits, dx, nullptr, nullptr};
  product.shape.inputs = product.shape.output = kElementType<T>;
  return product;
}

/// dw[vocabulary, width] = dlogits[rows, ld]ᵀ·x[rows, width], or that added with `add`, and dbias[vocabulary]
/// = Σ dlogits (unless null; null with `add`, since an epilogue only overwrites).
template <typename T>
Product head_backward_weight(const T* dlogits, const T* x, float* dw, float* dbias, bool add, int64_t rows,
                             int64_t width, int64_t vocabulary, int64_t ld) {
  Product product{{width, vocabulary, rows, width, ld, width, 0}, x, dlogits, dw, dbias, nullptr};
  product.shape.b_transposed = true;
  product.shape.adds = add;
  product.shape.inputs = kElementType<T>;
  if (dbias != nullptr) product.shape.epilogue = Epilogue::sums_of_b;
  return product;
}

/// Whether an epilogue can be had: every array begins at a multiple of 16 bytes, and so does each of its
/// columns. Where that is not so, kernels do what the epilogue would.
inline bool takes_epilogue(const Product& product) {
  const auto& [shape, a, b, d, bias, pre_activation] = product;
  uintptr_t bits = 0;
  for (const void* pointer : {a, b, static_cast<const void*>(d), static_cast<const void*>(bias),
                              static_cast<const void*>(pre_activation)})
    bits |= reinterpret_cast<uintptr_t>(pointer);
  bits |= static_cast<uintptr_t>((shape.lda | shape.ldb) * size_of(shape.inputs));
  bits |= static_cast<uintptr_t>((shape.ldd | shape.ld_pre) * size_of(shape.output));
  return bits % 16 == 0;
}

}  // namespace loom::cuda
