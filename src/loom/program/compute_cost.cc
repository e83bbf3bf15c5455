// Costs by step (model/recipe.h).
#include "program/compute_cost.h"

#include <algorithm>
#include <cmath>

#include "model/fusion.h"
#include "program/steps.h"

namespace loom::program {
namespace {

using model::Kernel;
using model::Step;

/// A unit's work in forward passes: backward computes two products for each of them.
double passes_of(Op op) { return op == Op::loss ? 3 : op == Op::backward ? 2 : 1; }

Cost product_cost(KernelKind kind, double rows, double columns, double depth, double element) {
  return {kind,    2 * rows * columns * depth,
          0,       rows,
          columns, element * (rows * depth + depth * columns + rows * columns)};
}

/// The costs of steps. Of embedding and head their tables, products and losses count: other passes over their
/// rows are few beside those of all blocks.
class StepCosts {
 public:
  StepCosts(const Job& job, const Device& device, int unit, Op op)
      : job_(job),
        device_(device),
        layer_(unit - 1),
        block_(unit > 0 && unit <= job.spec.layers),
        op_(op),
        element_(static_cast<double>(job.element_bytes())) {}

  void add(const Step& step) {
    if (!block_ && !is_of_ends(step.kernel)) return;
    using enum KernelKind;
    const double rows = static_cast<double>(step.rows), in = static_cast<double>(step.in),
                 out = static_cast<double>(step.out);
    switch (step.kernel) {
      case Kernel::norm: return pass(norm, 2 * element_ * rows * in);
      case Kernel::norm_gradient: return pass(norm_gradient, 4 * element_ * rows * in);
      case Kernel::head_norm: return pass(norm, 2 * element_ * rows * (in + 2 * out));
      case Kernel::head_norm_gradient: return pass(norm_gradient, 3 * element_ * rows * (in + out));
      case Kernel::linear: return multiply(product, rows, out, in);
      case Kernel::linear_input: return multiply(input_gradient, rows, in, out);
      case Kernel::linear_weight: return multiply(weight_gradient, in, out, rows);
      case Kernel::attention:
        pass(heads, 2 * element_ * rows * (in + 2 * out));
        attend(attention, rows, in, 1, 6.5);
        return pass(heads, 2 * element_ * rows * in);
      case Kernel::attention_gradient:
        pass(heads_gradient, 4 * element_ * rows * in);
        attend(attention_gradient, rows, in, is_fused() ? 2.5 : 2, 9.5);
        return pass(heads_gradient, 4 * element_ * rows * (in + 2 * out));
      case Kernel::activation: return pass(activation, 2 * element_ * rows * in);
      case Kernel::activation_gradient: return pass(activation_gradient, 4 * element_ * rows * in);
      case Kernel::gated: return pass(activation, 3 * element_ * rows * in);
      case Kernel::gated_gradient: return pass(activation_gradient, 5 * element_ * rows * in);
      case Kernel::residual: return pass(residual, (3 * element_ + 1) * rows * in);
      case Kernel::dropout:
        return pass(step.probability > 0 ? dropout : residual_gradient, 2 * (3 * element_ + 1) * rows * in);
      case Kernel::embed:
      case Kernel::split_embed: return pass(embedding, (2 * element_ + 1) * rows * in);
      case Kernel::embed_gradient:
      case Kernel::split_embed_gradient: return pass(embedding_gradient, 2 * (2 * element_ + 1) * rows * in);
      default: return add_head(step, rows, in, out);
    }
  }

  /// Two steps at once. Whether they are; else nothing is added.
  bool add_fused(const Step& first, const Step& second) {
    const model::Fusion fusion = model::fusion_of(first, second);
    const bool epilogue =
        fusion == model::Fusion::linear_gelu || fusion == model::Fusion::linear_input_gelu_gradient;
    if (!block_ || fusion == model::Fusion::none || (epilogue && element_ > 2)) return false;
    const double between = element_ * static_cast<double>(second.rows * second.in);
    add(first);
    const size_t one = costs_.size() - 1;
    if (epilogue) {
      costs_[one].operand_bytes += between;
      return true;
    }
    add(second);
    costs_[one].bytes += costs_.back().bytes - between;
    costs_.pop_back();
    return true;
  }

  std::vector<Cost> take() { return std::move(costs_); }

 private:
  static bool is_of_ends(Kernel kernel) {
    return kernel != Kernel::norm && kernel != Kernel::norm_gradient && kernel != Kernel::dropout &&
           kernel != Kernel::activation && kernel != Kernel::activation_gradient;
  }

  void add_head(const Step& step, double rows, double width, double columns) {
    // Of several ranks the first step makes a third of the passes over a loss's logits, and all without it.
    const double passes = step.kernel == Kernel::cross_entropy               ? passes_of(op_)
                          : step.kernel == Kernel::split_begin               ? 1
                          : step.kernel == Kernel::split_finish && step.adds ? 2
                                                                             : 0;
    if (step.kernel == Kernel::logits) multiply(KernelKind::product, rows, columns, width);
    if (step.kernel == Kernel::logits_gradient) {
      multiply(KernelKind::input_gradient, rows, columns, width);
      multiply(KernelKind::weight_gradient, rows, columns, width);
      // The gradient is fp32, and each piece of rows but the first reads it, too.
      costs_.back().operand_bytes += (step.first > 0 ? 8 - element_ : 4 - element_) * columns * width;
    }
    if (passes > 0) pass(KernelKind::cross_entropy, passes * 2 * element_ * rows * columns);
  }

  /// Whether fused attention has a rate: then its gradient takes 2.5 times the operations.
  bool is_fused() const {
    const bool known =
        device_.fused_flops > 0 || device_.rates[static_cast<size_t>(KernelKind::attention_gradient)] > 0;
    return known && device_.attention == AttentionKind::fused;
  }

  void multiply(KernelKind kind, double rows, double columns, double depth) {
    costs_.push_back(product_cost(kind, rows, columns, depth, element_));
  }
  void pass(KernelKind kind, double bytes) { costs_.push_back({kind, 0, bytes}); }

  void attend(KernelKind kind, double rows, double across, double passes, double score_passes) {
    const double of_key = passes * 4 * rows * across;
    if (device_.attention == AttentionKind::fused) {
      costs_.push_back({kind, of_key * job_.spec.keys_seen(layer_, job_.tokens)});
      return;
    }
    costs_.push_back({KernelKind::batched, of_key * static_cast<double>(job_.tokens)});
    const double heads = static_cast<double>(job_.share().attention.query_heads);
    pass(KernelKind::scores, score_passes * element_ * rows * static_cast<double>(job_.tokens) * heads);
  }

  const Job& job_;
  const Device& device_;
  const int64_t layer_;
  const bool block_;
  const Op op_;
  const double element_;
  std::vector<Cost> costs_;
};

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

std::vector<Cost> costs_of(const Job& job, const Device& device, int unit, Op op, Steps steps) {
  const model::RecipeSizes sizes = job.recipe_sizes();
  const model::Recipe recipe = unit == 0 ? model::embedding_recipe(job.spec, sizes)
                               : unit <= job.spec.layers
                                   ? model::block_recipe(job.spec, sizes)
                                   : model::head_recipe(job.spec, sizes,
                                                        op == Op::loss       ? model::HeadPass::loss
                                                        : op == Op::evaluate ? model::HeadPass::evaluation
                                                                             : model::HeadPass::logits);
  const std::vector<Step>& all = steps_of(recipe, op);
  StepCosts costs(job, device, unit, op);
  const int last = steps.last < 0 ? static_cast<int>(all.size()) : steps.last;
  for (int i = steps.first; i < last; ++i) {
    const Step& step = all[static_cast<size_t>(i)];
    const bool joins = step.fuses && i + 1 < last;
    if (joins && costs.add_fused(step, all[static_cast<size_t>(i) + 1])) ++i;
    else costs.add(step);
  }
  return costs.take();
}

double cost_us(const Machine& machine, const Cost& kernel) {
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
      else if (device.pass_bandwidth > 0)
        us = std::max(us, kernel.operand_bytes / device.pass_bandwidth * 1e6);
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

ComputeTime compute_time(const Job& job, const Machine& machine, int unit, Op op, Steps steps) {
  ComputeTime time;
  for (const Cost& cost : costs_of(job, machine.device, unit, op, steps)) {
    const double us = cost_us(machine, cost);
    (cost.kind <= KernelKind::weight_gradient ? time.product_us
     : cost.kind <= KernelKind::batched       ? time.attention_us
                                              : time.pass_us) += us;
  }
  if (machine.unit_us.empty()) return time;
  // Measured: some of the steps have that part of it which they have of the modelled time.
  const bool again = job.recomputes(unit);
  double us =
      machine.unit_us[static_cast<size_t>(unit)] * passes_of(op) / (again ? 4 : 3) / job.tensor_degree;
  if (steps.last >= 0) {
    Machine modelled = machine;
    modelled.unit_us.clear();
    const double whole = compute_time(job, modelled, unit, op).all_us();
    us *= whole > 0 ? time.all_us() / whole : steps.first == 0 ? 1 : 0;
  }
  return {us, 0, 0};
}

double compute_us(const Job& job, const Machine& machine, int unit, Op op) {
  return compute_time(job, machine, unit, op).all_us();
}

double compute_us(const Job& job, const Machine& machine, const Instruction& instruction) {
  return compute_time(job, machine, instruction.unit, instruction.op,
                      {std::max(instruction.first, 0), instruction.last})
      .all_us();
}

double score_bytes(const Job& job, AttentionKind attention) {
  if (attention == AttentionKind::fused) return 0;
  // Scores, their softmax, and what dropout leaves with its mask.
  const double pairs = static_cast<double>(job.batch * job.tokens) * static_cast<double>(job.tokens) *
                       static_cast<double>(job.share().attention.query_heads);
  return pairs * (3 * static_cast<double>(job.element_bytes()) + 1);
}

}  // namespace loom::program
