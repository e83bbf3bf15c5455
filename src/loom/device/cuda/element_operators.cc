// Operators that take each element for itself: activations, dropout, sums, AdamW, random numbers.
#include "device/cuda/kernels/activation.h"
#include "device/cuda/kernels/adamw.h"
#include "device/cuda/kernels/dropout.h"
#include "device/cuda/kernels/elementwise.h"
#include "device/cuda/kernels/normal.h"
#include "device/cuda/operator_launches.h"

namespace loom::cuda {
namespace {

const char* name_of(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::gelu_tanh: return "gelu_tanh";
    case ops::Activation::gelu_erf: return "gelu_erf";
    case ops::Activation::relu: return "relu";
    case ops::Activation::silu: return "silu";
    default: return "tanh";
  }
}

template <typename T>
std::string kernel_of_activation(const char* kind, ops::Activation activation, const char* pass) {
  return kernel_of<T>((kind + std::string(name_of(activation)) + pass).c_str());
}

template <typename T>
void activate(Compute& compute, ops::Activation activation, const T* x, T* y, int64_t n) {
  compute.launch(kernel_of_activation<T>("", activation, "_forward"), ActivationForwardArguments<T>{x, y, n});
}

template <typename T>
void activate_back(Compute& compute, ops::Activation activation, const T* x, const T* dy, T* dx, int64_t n) {
  compute.launch(kernel_of_activation<T>("", activation, "_backward"),
                 ActivationBackwardArguments<T>{x, dy, dx, n});
}

template <typename T>
void gate(Compute& compute, ops::Activation activation, const T* x, T* y, int64_t rows, int64_t width) {
  compute.launch(kernel_of_activation<T>("gated_", activation, "_forward"),
                 GatedForwardArguments<T>{x, y, rows, width});
}

template <typename T>
void gate_back(Compute& compute, ops::Activation activation, const T* x, const T* dy, T* dx, int64_t rows,
               int64_t width) {
  compute.launch(kernel_of_activation<T>("gated_", activation, "_backward"),
                 GatedBackwardArguments<T>{x, dy, dx, rows, width});
}

template <typename T>
void drop(Compute& compute, const ops::Dropout& dropout, const T* x, T* y, int64_t n) {
  compute.launch(kernel_of<T>("dropout"), DropoutArguments<T>{x, y, n, DropoutMask(dropout)});
}

template <typename T>
void add_drop(Compute& compute, const ops::Dropout& dropout, const T* residual, const T* x, const T* bias,
              T* y, int64_t rows, int64_t width) {
  compute.launch(kernel_of<T>("add_dropout"),
                 AddDropoutArguments<T>{residual, x, bias, y, rows, width, DropoutMask(dropout)});
}

void draw(Compute& compute, ops::RandomKey key, uint64_t first, float deviation, float* y, int64_t n) {
  compute.launch("loom_normal", NormalArguments{y, n, key, first, deviation});
}

void add_up(Compute& compute, const float* a, const float* b, float* sum, int64_t n) {
  compute.launch("loom_add", AddArguments{a, b, sum, n});
}

void clear(Compute& compute, void* to, int64_t bytes) { compute.fill(to, std::byte{0}, bytes); }
void copy(Compute& compute, const void* from, void* to, int64_t bytes) { compute.copy(to, from, bytes); }
void sum(Compute& compute, const double* x, double* sum, int64_t n) {
  compute.launch("loom_sum", SumArguments{x, sum, n});
}

template <typename T>
void read_logits(Compute& compute, const void* logits, float* to, int64_t n) {
  compute.launch(kernel_of<T>("widen"), WidenArguments<T>{static_cast<const T*>(logits), to, n});
}

template <typename T>
void round(Compute& compute, const float* from, T* to, int64_t n) {
  compute.launch(kernel_of<T>("convert"), ConvertArguments<T>{from, to, n, 1, nullptr});
}

void squares(Compute& compute, const float* x, int64_t n, int64_t size, double* chunk) {
  compute.launch("loom_sum_of_squares", SumOfSquaresArguments{x, chunk, n, size});
}

template <typename T>
void update(Compute& compute, const ops::AdamW& settings, const float* gradient, float* master,
            ops::Slots<float> slots, T* parameter, int64_t n) {
  compute.launch(kernel_of<T>("adamw"),
                 AdamWArguments<T>{gradient, master, slots.at[0], slots.at[1], parameter, n,
                                   formulas::AdamWUpdate<float>(settings)});
}

}  // namespace

template <typename T>
void add_elements(ops::Operators<T>& table) {
  table.activation_forward = activate<T>;
  table.activation_backward = activate_back<T>;
  table.gated_forward = gate<T>;
  table.gated_backward = gate_back<T>;
  table.dropout = drop<T>;
  table.add_dropout = add_drop<T>;
  table.normal = draw;
  table.add = add_up;
  table.clear = clear;
  table.copy = copy;
  table.sum = sum;
  table.read_logits = read_logits<T>;
  table.convert = round<T>;
  table.sum_of_squares = squares;
  table.update = update<T>;
}
LOOM_FOR_EVERY_GPU_TYPE(add_elements, Operators)

}  // namespace loom::cuda
