// A graph as the fake cuDNN has understood it: tensors and operations as values, what of it the library would
// refuse, and how it is computed, operation by operation.
//
// Thread safety: a program is constant; run() is a pure function of its arrays.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "loom/device/fake_cudnn/descriptors.h"

namespace fake_dnn {

using Index = std::array<int64_t, 4>;

struct Tensor {
  int64_t id = 0, alignment = 1;
  int type = kDnnFloat32;
  Index sizes{}, strides{};
  enum class Place { array, number, between } place = Place::array;
  bool written = false;  // by an operation

  int64_t element_bytes() const { return type == kDnnFloat16 || type == kDnnBfloat16 ? 2 : 4; }
  int64_t elements() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }
  int64_t offset(const Index& at) const;
  /// From the first element to the last.
  uint64_t extent_bytes() const;
};

struct Step {
  enum class Kind { pointwise, multiply, reduce, reshape } kind;
  int mode = 0;
  int64_t axis = 0;
  /// Positions among the tensors; -1: none. Of a product: a, b, rows, columns, terms.
  std::array<int, 5> operands = {-1, -1, -1, -1, -1};
  int result = -1;
};

struct Program {
  std::vector<Tensor> tensors;
  std::vector<Step> steps;

  /// A sum in fp32 that the steps write to an array goes on in another order in each run.
  bool is_deterministic() const;
  /// The workspace that its kernel would take.
  int64_t workspace_bytes() const;
  /// Whether the library has a kernel for it.
  bool is_supported() const;
};

/// Errors are the library's: tensors that are no matrices, that are written twice or read before.
int read_program(const Descriptor& graph, Program& program);

/// arrays[i] is where tensors[i] is, unless it is between; numbers are there as well. `turn` numbers the
/// runs.
void run(const Program& program, const std::vector<void*>& arrays, uint64_t turn);

}  // namespace fake_dnn
