// Machine: what a step is simulated on. Ranks on nodes, what a rank's device computes, what links carry, and
// how the engine that trains there communicates.
//
// Thread safety: values.
#pragma once

#include <array>
#include <functional>
#include <vector>

namespace loom::program {

/// How attention is computed. Fused kernels keep scores on the chip; standard ones write and read matrices of
/// a sequence's pairs of tokens.
enum class AttentionKind { fused, standard };

/// Kinds of kernels, each of which has a rate of its own on a device that was measured.
enum class KernelKind {
  product,             // of a linear layer, forward
  input_gradient,      // of a linear layer
  weight_gradient,     // of a linear layer, with its bias's
  attention,           // fused
  attention_gradient,  // fused
  batched,             // products of standard attention
  scores,              // passes over its matrices
  norm,
  norm_gradient,
  heads,           // split and merged
  heads_gradient,  // the same of gradients
  residual,        // the sum of a product, its bias and the residual
  residual_gradient,
  dropout,  // of a residual's gradient
  activation,
  activation_gradient,
  cross_entropy,
  embedding,
  embedding_gradient,
  accumulate,  // of gradients
  squares,     // for the norm of the gradients
  optimizer,
};
constexpr int kKernelKinds = 22;

/// By kind: floating-point operations a second of products and attention, bytes a second of all others.
using KernelRates = std::array<double, kKernelKinds>;

/// What a rank's device reaches besides its matrix products.
struct Device {
  AttentionKind attention = AttentionKind::fused;
  double fused_flops = 0;     // of fused attention, per second; 0: as products
  double batched_flops = 0;   // of standard attention's products, per second; 0: as products
  double pass_bandwidth = 0;  // of kernels that only move memory, bytes/s; 0: these take no time
  int multiprocessors = 0;    // over which a product's tiles are dealt out in waves; 0: waves do not count
  double launch_us = 0;       // the least time of a kernel
  /// What was measured of each kind, in place of the rates above; 0: it was not. Infinite: the device has no
  /// such kernel.
  KernelRates rates = {};
  /// At which a product reads its operands and writes its result, before and after its operations, bytes/s;
  /// 0: meanwhile, at pass_bandwidth.
  double operand_bandwidth = 0;
};

/// CPU cores that ranks share. A rank that computes alone has one for each of its threads.
struct SharedCores {
  int ranks = 0;  // that share them; 0: each rank has cores of its own
  double cores = 0;
  int threads = 1;  // of a rank
};

/// What a collective is of, for those that know how long it takes.
struct CollectiveShape {
  enum class Kind { gather, reduce_scatter, all_reduce } kind = Kind::gather;
  double bytes = 0;        // of all ranks of the group together; of an AllReduce of one
  int nodes = 1;           // that the group lies on, …
  int ranks_per_node = 1;  // … with so many ranks on each
  int sharing = 1;         // groups that share each node's interfaces
  double interfaces = 1;   // part of its interfaces that each node has left
};

/// Microseconds that a collective takes alone; negative: not known.
using CollectiveTimes = std::function<double(const CollectiveShape&)>;

/// How an engine communicates. What is 0 is as the links and the plans are.
struct Traffic {
  double gather_bandwidth = 0;      // of a node while it gathers from others, bytes/s
  double reduce_bandwidth = 0;      // of a node while it reduces with others, bytes/s
  double all_reduce_bandwidth = 0;  // of a node in an AllReduce that is long, bytes/s
  double all_reduce_latency_us = 0;
  double hidden = 1;           // part of a collective's time that computing goes on behind
  double multiprocessors = 0;  // part of the device's that a collective in flight takes from computing
  int gradient_bytes = 4;      // of an element of a gradient that travels
  /// Whether each tensor rank sends its part of a stage's output, which the next stage's gather in their
  /// node.
  bool scatters_transfers = false;
  bool fuses_sums = false;  // whether products add to the sum of gradients as they write
};

struct Machine {
  int ranks_per_node = 1;
  double flops = 1e11;             // of matrix products, for a rank, per second
  double memory_bandwidth = 1e10;  // of a rank, bytes/s: optimizer and sums
  double intra_bandwidth = 1e10;   // of a rank to others of its node, bytes/s
  double inter_bandwidth = 1e9;    // of a node to others, bytes/s; its ranks share it
  double intra_latency_us = 2;
  double inter_latency_us = 20;
  double tier_bandwidth = 1e9;  // of a rank to the file of offloaded activations, bytes/s
  double call_us = 0;           // that a call which issues communication holds its caller
  /// Measured times of one microbatch through each unit, forward and backward, by one rank (profile_units());
  /// empty: by kernels (compute_cost.h).
  std::vector<double> unit_us = {};
  Device device = {};
  SharedCores shared = {};
  Traffic traffic = {};
  double interfaces = 1;       // part of its interfaces that each node has left
  CollectiveTimes plans = {};  // empty: by the formula of collective_cost.h
};

}  // namespace loom::program
