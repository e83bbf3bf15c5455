// Kernels by piece: what tensor ranks compute between two exchanges (model/split_compute.h).
#include "program/compute_cost.h"

#include <algorithm>
#include <cmath>

#include "model/split_compute.h"

namespace loom::program {
namespace {

/// A unit's work in forward passes: backward computes two products for each of them.
double passes_of(Op op) { return op == Op::loss ? 3 : op == Op::backward ? 2 : 1; }

Kernel product_kernel(KernelKind kind, double rows, double columns, double depth, double element) {
  return {kind,    2 * rows * columns * depth,
          0,       rows,
          columns, element * (rows * depth + depth * columns + rows * columns)};
}

/// A block's kernels, as a rank of a tensor group has them.
class BlockKernels {
 public:
  BlockKernels(const Job& job, const Device& device)
      : rows_(static_cast<double>(job.batch * job.tokens)),
        own_rows_(static_cast<double>(job.rows())),
        tokens_(static_cast<double>(job.tokens)),
        heads_(static_cast<double>(job.spec.heads) / job.tensor_degree),
        width_(static_cast<double>(job.spec.width)),
        share_(width_ / job.tensor_degree),
        hidden_(static_cast<double>(job.spec.feed_forward) / job.tensor_degree),
        element_(static_cast<double>(job.element_bytes())),
        causal_(job.spec.causal),
        drops_(job.spec.residual_dropout > 0),
        device_(device) {}

  std::vector<Kernel> forward(int piece) {
    const auto has = [&](int one) { return piece < 0 || piece == one; };
    using enum KernelKind;
    if (has(0)) pass(KernelKind::norm, own_rows_ * norm_bytes());
    if (has(1)) {
      multiply(product, rows_, 3 * share_, width_);
      pass(heads, rows_ * split());
      attend(attention, 1, 6.5);
      pass(heads, rows_ * merge());
      multiply(product, rows_, width_, share_);
    }
    if (has(2)) pass(residual, own_rows_ * sum()), pass(KernelKind::norm, own_rows_ * norm_bytes());
    if (has(3)) {
      multiply(product, rows_, hidden_, width_);
      pass(KernelKind::activation, rows_ * activated());
      multiply(product, rows_, width_, hidden_);
    }
    if (has(4)) pass(residual, own_rows_ * sum());
    return std::move(kernels_);
  }

  std::vector<Kernel> backward(int piece) {
    const auto has = [&](int one) { return piece < 0 || piece == one; };
    using enum KernelKind;
    const KernelKind through = drops_ ? dropout : residual_gradient;
    if (has(0)) pass(through, 2 * own_rows_ * sum());
    if (has(1)) {
      multiply(input_gradient, rows_, hidden_, width_);
      pass(activation_gradient, 2 * rows_ * activated());
      multiply(input_gradient, rows_, width_, hidden_);
    }
    if (has(2)) multiply(weight_gradient, width_, hidden_, rows_);
    if (has(3)) pass(norm_gradient, 2 * own_rows_ * norm_bytes()), pass(through, 2 * own_rows_ * sum());
    if (has(4)) multiply(weight_gradient, hidden_, width_, rows_);
    if (has(5)) {
      multiply(input_gradient, rows_, share_, width_);
      pass(heads_gradient, 2 * rows_ * merge());
      attend(attention_gradient, is_fused() ? 2.5 : 2, 9.5);
      pass(heads_gradient, 2 * rows_ * split());
      multiply(input_gradient, rows_, width_, 3 * share_);
    }
    if (has(6))
      multiply(weight_gradient, width_, 3 * share_, rows_), multiply(weight_gradient, share_, width_, rows_);
    if (has(7)) pass(norm_gradient, 2 * own_rows_ * norm_bytes());
    return std::move(kernels_);
  }

 private:
  // Bytes of a token.
  double norm_bytes() const { return 2 * element_ * width_; }
  double split() const { return 6 * element_ * share_; }
  double merge() const { return 2 * element_ * share_; }
  double sum() const { return (3 * element_ + 1) * width_; }
  double activated() const { return 2 * element_ * hidden_; }

  /// Whether fused attention has a rate: then its gradient takes 2.5 times the operations.
  bool is_fused() const {
    const bool known =
        device_.fused_flops > 0 || device_.rates[static_cast<size_t>(KernelKind::attention_gradient)] > 0;
    return known && device_.attention == AttentionKind::fused;
  }

  void multiply(KernelKind kind, double rows, double columns, double depth) {
    kernels_.push_back(product_kernel(kind, rows, columns, depth, element_));
  }
  void pass(KernelKind kind, double bytes) { kernels_.push_back({kind, 0, bytes}); }

  void attend(KernelKind kind, double passes, double score_passes) {
    const double all_pairs = 4 * rows_ * tokens_ * share_;
    if (device_.attention == AttentionKind::fused) {
      kernels_.push_back({kind, passes * all_pairs / (causal_ ? 2 : 1)});
      return;
    }
    kernels_.push_back({KernelKind::batched, passes * all_pairs});
    pass(KernelKind::scores, score_passes * element_ * rows_ * tokens_ * heads_);
  }

  const double rows_, own_rows_, tokens_, heads_, width_, share_, hidden_, element_;
  const bool causal_, drops_;
  const Device& device_;
  std::vector<Kernel> kernels_;
};

/// The part of a rank's share of the head that a piece has: pieces on rows have none.
double part_of_head(const Job& job, Op op, int piece) {
  if (piece < 0) return 1;
  if (job.spec.task == model::Task::classification) return piece;
  const double pairs = model::head_pairs(job.share(), job.split_head_rows());
  const int number = job.picks_rows() ? piece - 1 : piece;
  if (number <= 0 || number > 2 * pairs) return 0;
  if (op == Op::evaluate) return number % 2 == 1 ? 1 / pairs : 0;
  return (number % 2 == 1 ? 1.0 : 2.0) / 3 / pairs;
}

std::vector<Kernel> head_kernels(const Job& job, Op op, int piece) {
  const double rows = static_cast<double>(job.head_rows()),
               element = static_cast<double>(job.element_bytes());
  const double columns = static_cast<double>(job.spec.outputs()) / job.tensor_degree;
  const double depth = static_cast<double>(job.spec.head_weights()) / job.tensor_degree / columns;
  const double part = part_of_head(job, op, piece);
  std::vector<Kernel> kernels;
  const auto add = [&](KernelKind kind) {
    kernels.push_back(product_kernel(kind, rows, columns, depth, element));
    kernels.back().flops *= part;
    kernels.back().operand_bytes *= part;
  };
  add(KernelKind::product);
  if (op == Op::loss) add(KernelKind::input_gradient), add(KernelKind::weight_gradient);
  kernels.push_back({KernelKind::cross_entropy, 0, part * passes_of(op) * 2 * element * rows * columns});
  return kernels;
}

/// How much longer a product takes because its last wave of tiles does not fill the device.
double wave_factor(double rows, double columns, int multiprocessors) {
  if (multiprocessors == 0 || rows == 0) return 1;
  constexpr double kLong = 256, kShort = 128;
  const auto slots = [&](double tall, double wide) {
    const double tiles = std::ceil(rows / tall) * std::ceil(columns / wide);
    return std::ceil(tiles / multiprocessors) * multiprocessors * tall * wide;
  };
  return std::min(slots(kLong, kShort), slots(kShort, kLong)) / (rows * columns);
}

}  // namespace

ComputeTime& ComputeTime::operator+=(const ComputeTime& other) {
  product_us += other.product_us;
  attention_us += other.attention_us;
  pass_us += other.pass_us;
  return *this;
}

ComputeTime ComputeTime::operator*(double factor) const {
  return {product_us * factor, attention_us * factor, pass_us * factor};
}

std::vector<Kernel> kernels_of(const Job& job, const Device& device, int unit, Op op, int piece) {
  if (unit > job.spec.layers) return head_kernels(job, op, piece);
  if (unit > 0) {
    BlockKernels block(job, device);
    return op == Op::backward ? block.backward(piece) : block.forward(piece);
  }
  const double elements = static_cast<double>(job.rows() * job.spec.width);
  const double element = static_cast<double>(job.element_bytes());
  const KernelKind kind = op == Op::backward ? KernelKind::embedding_gradient : KernelKind::embedding;
  return {{kind, 0, piece > 0 ? 0 : passes_of(op) * (2 * element + 1) * elements}};
}

double kernel_us(const Machine& machine, const Kernel& kernel) {
  const Device& device = machine.device;
  const double measured = device.rates[static_cast<size_t>(kernel.kind)];
  const auto rate = [&](double otherwise) { return measured > 0 ? measured : otherwise; };
  const auto operations_us = [&](double otherwise) {
    return kernel.flops / rate(otherwise > 0 ? otherwise : machine.flops) * 1e6;
  };
  const auto bytes_us = [&](double otherwise) {
    return rate(otherwise) > 0 ? kernel.bytes / rate(otherwise) * 1e6 : 0;
  };
  double us = 0;
  switch (kernel.kind) {
    case KernelKind::product:
    case KernelKind::input_gradient:
    case KernelKind::weight_gradient:
      us = operations_us(0) * wave_factor(kernel.rows, kernel.columns, device.multiprocessors);
      if (device.operand_bandwidth > 0) us += kernel.operand_bytes / device.operand_bandwidth * 1e6;
      break;
    case KernelKind::attention:
    case KernelKind::attention_gradient: us = operations_us(device.fused_flops); break;
    case KernelKind::batched: us = operations_us(device.batched_flops); break;
    case KernelKind::accumulate:
    case KernelKind::squares:
    case KernelKind::optimizer: return bytes_us(machine.memory_bandwidth);
    default: us = bytes_us(device.pass_bandwidth);
  }
  return us > 0 ? std::max(us, device.launch_us) : 0;
}

ComputeTime compute_time(const Job& job, const Machine& machine, int unit, Op op, int piece) {
  ComputeTime time;
  for (const Kernel& kernel : kernels_of(job, machine.device, unit, op, piece)) {
    const double us = kernel_us(machine, kernel);
    (kernel.kind <= KernelKind::weight_gradient ? time.product_us
     : kernel.kind <= KernelKind::batched       ? time.attention_us
                                                : time.pass_us) += us;
  }
  if (machine.unit_us.empty()) return time;
  // Measured: a piece has that part of it which it has of the modelled time.
  const bool again = job.recomputes(unit);
  double us =
      machine.unit_us[static_cast<size_t>(unit)] * passes_of(op) / (again ? 4 : 3) / job.tensor_degree;
  if (piece >= 0) {
    Machine modelled = machine;
    modelled.unit_us.clear();
    const double whole = compute_time(job, modelled, unit, op).all_us();
    us *= whole > 0 ? time.all_us() / whole : piece == 0 ? 1 : 0;
  }
  return {us, 0, 0};
}

double compute_us(const Job& job, const Machine& machine, int unit, Op op) {
  return compute_time(job, machine, unit, op).all_us();
}

double compute_us(const Job& job, const Machine& machine, const Instruction& instruction) {
  return compute_time(job, machine, instruction.unit, instruction.op, instruction.piece).all_us();
}

double score_bytes(const Job& job, AttentionKind attention) {
  if (attention == AttentionKind::fused) return 0;
  // Scores, their softmax, and what dropout leaves with its mask.
  const double pairs = static_cast<double>(job.batch * job.tokens) * static_cast<double>(job.tokens) *
                       static_cast<double>(job.spec.heads) / job.tensor_degree;
  return pairs * (3 * static_cast<double>(job.element_bytes()) + 1);
}

}  // namespace loom::program
