// One pass over the list: lane 0 is a clock, each kind of link another.
#include "program/simulate.h"

#include <algorithm>

#include "model/split_compute.h"

namespace loom::program {
namespace {

class Simulation {
 public:
  Simulation(const Job& job, const Program& program, const Machine& machine)
      : job_(job), layout_(job.layout()), program_(program), machine_(machine), units_(job.held_units()) {}

  Forecast run() {
    Forecast forecast;
    forecast.intervals.resize(program_.instructions.size());
    double now = 0;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      double start = now;
      for (const int before : instruction.after) start = std::max(start, forecast.intervals[before].end_us);
      forecast.exposed_us += start - now;
      now = start;
      const double duration = duration_of(instruction);
      if (instruction.lane == 0) {
        forecast.intervals[i] = {now, now + duration};
        forecast.compute_us += duration;
        now += duration;
      } else {
        double& link = link_free_[leaves_node(instruction) ? 1 : 0];
        const double begin = std::max(now, link);
        link = begin + duration;
        forecast.intervals[i] = {begin, link};
      }
    }
    forecast.step_us = now;
    return forecast;
  }

 private:
  bool leaves_node(const Instruction& instruction) const {
    const GroupKind kind = instruction.op == Op::all_reduce ? GroupKind::replication
                           : instruction.op == Op::gather || instruction.op == Op::reduce_scatter
                               ? GroupKind::partition
                               : GroupKind::tensor;
    return layout_.spans_nodes(kind, 0, machine_.ranks_per_node);
  }

  double compute_flops(const Instruction& instruction) const {
    const model::ModelSpec& spec = job_.spec;
    const double rows = static_cast<double>(job_.batch) * job_.tokens;
    const double width = spec.width;
    double forward = 0;
    if (units_[instruction.unit].kind == model::UnitKind::block)
      forward =
          rows * (2.0 * (4.0 * width * width + 2.0 * width * spec.feed_forward) + 2.0 * width * job_.tokens);
    if (units_[instruction.unit].kind == model::UnitKind::head)
      forward = rows * 2.0 * width * spec.vocabulary;
    if (instruction.op == Op::loss) forward *= 3;
    if (instruction.op == Op::backward) forward *= 2;
    return instruction.piece < 0 ? forward : forward * part_of(instruction) / job_.tensor_degree;
  }

  /// The part of a unit's products that a piece has: those on rows have none.
  double part_of(const Instruction& i) const {
    const model::ModelSpec& spec = job_.spec;
    if (units_[i.unit].kind == model::UnitKind::head) {
      const double pairs = model::head_pairs(job_.share(), job_.batch * job_.tokens);
      if (i.piece == 0 || i.piece > 2 * pairs) return 0;
      if (i.op == Op::evaluate) return i.piece % 2 == 1 ? 1 / pairs : 0;
      return (i.piece % 2 == 1 ? 1.0 : 2.0) / 3 / pairs;
    }
    if (i.piece % 2 == 0) return 0;
    const double attention = 8.0 * spec.width + 2.0 * job_.tokens, hidden = 4.0 * spec.feed_forward;
    const bool in_attention = (i.piece == 1) == (i.op != Op::backward);
    return (in_attention ? attention : hidden) / (attention + hidden);
  }

  double duration_of(const Instruction& instruction) const {
    const auto streamed = [&](double bytes) { return bytes / machine_.memory_bandwidth * 1e6; };
    const double shard = instruction.unit < 0 ? 0 : static_cast<double>(job_.shard(units_[instruction.unit]));
    switch (instruction.op) {
      case Op::forward:
      case Op::recompute:
      case Op::loss:
      case Op::evaluate:
      case Op::backward: return compute_flops(instruction) / machine_.flops * 1e6;
      case Op::accumulate: return streamed(12 * shard);
      case Op::step: return streamed(28 * shard);  // reads 4 values, writes 3
      case Op::norm: {
        double elements = 0;
        for (const model::Unit& unit : units_) elements += static_cast<double>(job_.shard(unit));
        return streamed(4 * elements) +
               (job_.degree > 1 ? latency(job_.degree > machine_.ranks_per_node) : 0);
      }
      case Op::tensor_gather:
      case Op::tensor_all_reduce:
      case Op::tensor_reduce_scatter:
      case Op::tensor_gradients: return exchange(instruction);
      case Op::gather:
      case Op::reduce_scatter:
      case Op::all_reduce: return collective(instruction);
    }
    return 0;
  }

  double latency(bool between_nodes) const {
    return between_nodes ? machine_.inter_latency_us : machine_.intra_latency_us;
  }

  /// Exchanges of a tensor group: all its ranks on one node, or a node's ranks sharing its link.
  double exchange(const Instruction& instruction) const {
    double bytes = 0;  // of all rows, or of a gradient
    for (const Use& use : instruction.uses)
      bytes = std::max(bytes, static_cast<double>(program_.buffers[use.buffer].bytes));
    if (instruction.op == Op::tensor_gradients) {
      bytes = 0;
      for (const model::Parameter& parameter : units_[instruction.unit].parameters)
        if (model::is_of_rows(parameter.part)) bytes += 4.0 * static_cast<double>(parameter.elements());
      bytes /= job_.degree;
    }
    const bool twice = instruction.op == Op::tensor_all_reduce || instruction.op == Op::tensor_gradients;
    const double sent = volume(twice ? Op::all_reduce : Op::gather, bytes, job_.tensor_degree);
    const bool between = leaves_node(instruction);
    const double bandwidth =
        between ? machine_.inter_bandwidth / machine_.ranks_per_node : machine_.intra_bandwidth;
    return latency(between) * (twice ? 2 : 1) + sent / bandwidth * 1e6;
  }

  double collective(const Instruction& instruction) const {
    const bool all_reduce = instruction.op == Op::all_reduce;
    const int ranks = all_reduce ? job_.replicas() : job_.degree;
    const double elements = static_cast<double>(all_reduce ? job_.shard(units_[instruction.unit])
                                                           : job_.padded(units_[instruction.unit]));
    const double bytes = elements * (instruction.op == Op::gather ? job_.element_bytes() : 4);
    const bool between = leaves_node(instruction);
    if (!between)
      return latency(false) * (all_reduce ? 2 : 1) +
             volume(instruction.op, bytes, ranks) / machine_.intra_bandwidth * 1e6;
    // A node's ranks share its link. A gather over nodes brings into a node what its own ranks do not have.
    const int here = std::min(machine_.ranks_per_node, job_.world);
    double through;
    if (all_reduce) {
      const int apart = std::max(1, here / job_.degree);  // replicas of a shard on one node
      through = volume(instruction.op, bytes, std::max(1, ranks / apart)) * (here / apart);
    } else {
      through = bytes * (job_.degree - here) / job_.degree;
    }
    return latency(true) * (all_reduce ? 2 : 1) + through / machine_.inter_bandwidth * 1e6;
  }

  const Job& job_;
  const Layout layout_;
  const Program& program_;
  const Machine& machine_;
  std::vector<model::Unit> units_;
  double link_free_[2] = {0, 0};  // inside nodes, between nodes
};

}  // namespace

double volume(Op op, double bytes, int ranks) {
  return bytes * (ranks - 1) / ranks * (op == Op::all_reduce ? 2 : 1);
}

Forecast simulate(const Job& job, const Program& program, const Machine& machine) {
  return Simulation(job, program, machine).run();
}

}  // namespace loom::program
