// Linear layers and the head: products by cuBLASLt, and kernels where an epilogue cannot be had or is slower.
#include "device/cuda/kernels/activation.h"
#include "device/cuda/kernels/embedding.h"
#include "device/cuda/operator_launches.h"
#include "device/cuda/product.h"

namespace loom::cuda {
namespace {

/// Queues a product, and adds its bias by its epilogue or by a kernel.
template <typename T>
void queue_with_bias(Compute& compute, const Product& product, T* y, int64_t rows, int64_t width,
                     int64_t stride) {
  const T* const bias = static_cast<const T*>(product.bias);
  if (bias == nullptr) return compute.multiply(product);
  compute.multiply(product, [&] {
    Product alone = product;
    alone.shape.epilogue = Epilogue::none;
    alone.bias = nullptr;
    compute.multiply(alone);
    // As an embedding of one position, which every row has.
    compute.launch(kernel_of<T>("position"), PositionArguments<T>{y, bias, y, rows, width, stride, {}});
  });
}

template <typename T>
void forward(Compute& compute, const T* x, const T* w, const T* bias, T* y, int64_t rows, int64_t in,
             int64_t out) {
  queue_with_bias(compute, linear_forward(x, w, bias, y, rows, in, out), y, rows, out, out);
}

template <typename T>
void backward_input(Compute& compute, const T* dy, const T* w, T* dx, int64_t rows, int64_t in, int64_t out) {
  compute.multiply(linear_backward_input(dy, w, dx, rows, in, out));
}

template <typename T>
void backward_weight(Compute& compute, const T* x, const T* dy, float* dw, float* dbias, int64_t rows,
                     int64_t in, int64_t out) {
  const Product alone = linear_backward_weight<T>(x, dy, dw, nullptr, rows, in, out);
  if (dbias == nullptr) return compute.multiply(alone);
  compute.multiply(linear_backward_weight(x, dy, dw, dbias, rows, in, out), [&] {
    compute.multiply(alone);
    queue_column_sums(compute, dy, dbias, false, rows, out, out);
  });
}

/// Products of 16-bit rows whose width is odd are slow, so that rows of logits have a stride.
template <typename T>
void head(Compute& compute, const T* x, const T* w, const T* bias, void* logits, int64_t rows, int64_t width,
          int64_t vocabulary) {
  T* const to = static_cast<T*>(logits);
  const int64_t stride = logits_stride<T>(vocabulary);
  queue_with_bias(compute, head_forward(x, w, bias, to, rows, width, vocabulary, stride), to, rows,
                  vocabulary, stride);
}

template <typename T>
void head_back(Compute& compute, const void* dlogits, const T* x, const T* w, T* dx, float* dw, float* dbias,
               bool add, int64_t rows, int64_t width, int64_t vocabulary) {
  const T* const from = static_cast<const T*>(dlogits);
  const int64_t stride = logits_stride<T>(vocabulary);
  compute.multiply(head_backward_input(from, w, dx, rows, width, vocabulary, stride));
  compute.multiply(head_backward_weight<T>(from, x, dw, nullptr, add, rows, width, vocabulary, stride));
  if (dbias != nullptr) queue_column_sums(compute, from, dbias, add, rows, vocabulary, stride);
}

/// Queues a product whose epilogue is a GELU, or `apart`. cuBLASLt need not have that epilogue for fp32.
template <typename T, typename Apart>
void queue_with_gelu(Compute& compute, const Product& product, const Apart& apart) {
  if (sizeof(T) == 2) compute.multiply(product, apart);
  else apart();
}

template <typename T>
void forward_gelu(Compute& compute, const T* x, const T* w, const T* bias, T* before, T* y, int64_t rows,
                  int64_t in, int64_t out) {
  queue_with_gelu<T>(compute, linear_forward(x, w, bias, y, rows, in, out, before, out), [&] {
    forward(compute, x, w, bias, before, rows, in, out);
    compute.launch(kernel_of<T>("gelu_tanh_forward"), ActivationForwardArguments<T>{before, y, rows * out});
  });
}

template <typename T>
void backward_input_gelu(Compute& compute, const T* dy, const T* w, const T* before, T* dx, int64_t rows,
                         int64_t in, int64_t out) {
  queue_with_gelu<T>(compute, linear_backward_input(dy, w, dx, rows, in, out, before, in), [&] {
    backward_input(compute, dy, w, dx, rows, in, out);
    compute.launch(kernel_of<T>("gelu_tanh_backward"),
                   ActivationBackwardArguments<T>{before, dx, dx, rows * in});
  });
}

}  // namespace

template <typename T>
void add_fused_products(ops::FusedOperators<T>& table) {
  table.linear_gelu = forward_gelu<T>;
  table.linear_input_gelu_gradient = backward_input_gelu<T>;
}
LOOM_FOR_EVERY_GPU_TYPE(add_fused_products, FusedOperators)

template <typename T>
void add_products(ops::Operators<T>& table) {
  table.linear_forward = forward<T>;
  table.linear_backward_input = backward_input<T>;
  table.linear_backward_weight = backward_weight<T>;
  table.head_forward = head<T>;
  table.head_backward = head_back<T>;
}
LOOM_FOR_EVERY_GPU_TYPE(add_products, Operators)

}  // namespace loom::cuda
