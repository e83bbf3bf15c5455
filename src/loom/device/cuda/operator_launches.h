// Functions that the files of the GPU's operators share: names of kernels, and sums over rows.
#pragma once

#include <string>

#include "device/cuda/compute.h"
#include "device/cuda/kernels/column_sums.h"
#include "device/cuda/kernels/types.h"
#include "ops/fused.h"

namespace loom::cuda {

/// "loom_dropout_bf16"
template <typename T>
std::string kernel_of(const char* name) {
  return std::string("loom_") + name + "_" + kKernelType<T>;
}

/// Elements from row to row of this table's logits, which are of T: whole packs of 16 bits, but of so few
/// columns that fp32 would take less memory.
template <typename T>
int64_t logits_stride(int64_t vocabulary) {
  return sizeof(T) == 2 && vocabulary >= 8 ? ops::padded_logits(vocabulary) : vocabulary;
}

/// sum[width] = Σ over rows of x[rows, width], or that added. Rows are `stride` elements apart.
template <typename T>
void queue_column_sums(Compute& compute, const T* x, float* sum, bool add, int64_t rows, int64_t width,
                       int64_t stride) {
  ColumnSumsArguments<T> arguments{x, nullptr, rows, width, stride};
  arguments.partial = compute.scratch<float>(arguments.parts() * width);
  if (arguments.partial == nullptr) return;
  compute.launch(kernel_of<T>("column_sums"), arguments);
  compute.launch("loom_fold",
                 FoldArguments{arguments.partial, sum, nullptr, arguments.parts(), width, width, add});
}

template <typename T>
void add_attention(ops::Operators<T>& table);
template <typename T>
void add_products(ops::Operators<T>& table);
template <typename T>
void add_rows(ops::Operators<T>& table);
template <typename T>
void add_elements(ops::Operators<T>& table);
template <typename T>
void add_fused_products(ops::FusedOperators<T>& table);
template <typename T>
void add_fused_rows(ops::FusedOperators<T>& table);

#define LOOM_FOR_EVERY_GPU_TYPE(function, Table) \
  template void function(ops::Table<float>&);    \
  template void function(ops::Table<bf16>&);     \
  template void function(ops::Table<fp16>&);

}  // namespace loom::cuda
