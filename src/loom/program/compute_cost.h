// The cost of computing: the kernels of a unit's steps, and how long a device takes for each.
//
// A product takes its floating-point operations at the device's rate, rounded up to whole waves of tiles of
// 256 x 128 over its multiprocessors (NVIDIA, "Matrix Multiplication Background User's Guide"). A kernel
// that only moves memory takes its bytes. These are, per token of a block and forward pass, with elements of
// e bytes, width C and feed-forward F:
//   two norms                                 2e C each
//   heads split; merged                       6e C; 2e C
//   two sums with bias, dropout and residual  (3e + 1) C each
//   the activation                            2e F
// At 16 bits and F = 4 C the sum is 54 C bytes. Backward takes twice as much. Tensor ranks divide all but
// norms and sums, and these, too, where they divide rows.
//
// Steps that a GPU does at once (model/fusion.h) are one kernel: the second does not read what the first has
// made. A norm takes that off its bytes. A GELU is part of its product, which reads or writes the hidden
// layer once more; only elements of 16 bits have such products.
//
// Standard attention moves its scores. For each pair of tokens and head it moves 6.5 e bytes forward and 9.5
// e backward. Forward, the product writes a score, softmax reads and writes it, dropout reads it and writes
// it with a mask of a byte, and the product reads it. Fused attention computes half of the pairs where it is
// causal, and 2.5 times as much backward (Dao, "FlashAttention-2", 2023).
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "program/job.h"
#include "program/machine.h"
#include "program/program.h"

namespace loom::program {

/// Of one kernel.
struct Cost {
  KernelKind kind = KernelKind::residual;
  double flops = 0;
  double bytes = 0;              // of passes
  double rows = 0, columns = 0;  // of a product's result; 0: not known
  double operand_bytes = 0;      // of a product: that it reads and writes
};

/// Microseconds by what they are spent on.
struct ComputeTime {
  double product_us = 0;    // matrix products of weights
  double attention_us = 0;  // fused attention, or the products of standard attention
  double pass_us = 0;       // kernels that move memory

  double all_us() const { return product_us + attention_us + pass_us; }
  ComputeTime& operator+=(const ComputeTime& other);
  ComputeTime operator*(double factor) const;
};

/// Steps [first, last) of a unit's pass; all of them without a last one.
struct Steps {
  int first = 0, last = -1;
};

/// The kernels of what a rank computes of a microbatch through a unit.
std::vector<Cost> costs_of(const Job& job, const Device& device, int unit, Op op, Steps steps = {});
double cost_us(const Machine& machine, const Cost& kernel);

/// Of the kernels of one forward or backward pass through a unit, of a microbatch. Measured times count as
/// products; of these a backward pass has two parts for each forward pass's one.
ComputeTime compute_time(const Job& job, const Machine& machine, int unit, Op op, Steps steps = {});
double compute_us(const Job& job, const Machine& machine, int unit, Op op);
double compute_us(const Job& job, const Machine& machine, const Instruction& instruction);

/// Bytes of the scores of standard attention that a rank has at a time; 0 of fused attention.
double score_bytes(const Job& job, AttentionKind attention);

}  // namespace loom::program
