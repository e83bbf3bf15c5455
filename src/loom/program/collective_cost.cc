#include "program/collective_cost.h"

#include <algorithm>
#include <cmath>

namespace loom::program {
namespace {

GroupKind kind_of(Op op) {
  if (is_exchange(op)) return GroupKind::tensor;
  return op == Op::all_reduce ? GroupKind::replication : GroupKind::partition;
}

/// The collective that an instruction is.
Op collective_of(Op op) {
  switch (op) {
    case Op::all_reduce:
    case Op::tensor_all_reduce:
    case Op::tensor_gradients: return Op::all_reduce;
    case Op::reduce_scatter:
    case Op::tensor_reduce_scatter: return Op::reduce_scatter;
    default: return Op::gather;
  }
}

}  // namespace

double volume(Op op, double bytes, int ranks) {
  return bytes * (ranks - 1) / ranks * (op == Op::all_reduce ? 2 : 1);
}

double pipelined_us(double bytes, double bandwidth, double latency_us) {
  const double root = std::sqrt(latency_us) + std::sqrt(bytes / bandwidth * 1e6);
  return root * root;
}

Communication::Communication(const Job& job, const Machine& machine, const std::vector<model::Unit>& units)
    : job_(job), machine_(machine), layout_(job.layout()), units_(units) {}

bool Communication::leaves_node(int stage, int peer) const {
  const int node = machine_.ranks_per_node;
  return layout_.place({0, peer, 0}) / node != layout_.place({0, stage, 0}) / node;
}

const Communication::Shape& Communication::shape_of(GroupKind kind, int stage) {
  const auto [found, is_new] = shapes_.try_emplace({kind, stage});
  Shape& shape = found->second;
  if (!is_new) return shape;
  const int place = layout_.place({0, stage, 0}), node = place / machine_.ranks_per_node;
  std::map<int, int> members;  // of each node, which need not have equally many
  const std::vector<int> peers = layout_.peers(kind, place);
  for (const int peer : peers) ++members[peer / machine_.ranks_per_node];
  shape.ranks = static_cast<int>(peers.size());
  shape.nodes = static_cast<int>(members.size());
  shape.here = members[node];
  shape.even = std::all_of(members.begin(), members.end(),
                           [&](const auto& other) { return other.second == shape.here; });
  // As many groups share the link as fit beside this one.
  shape.sharing = std::max(1, std::min(machine_.ranks_per_node, job_.world) / shape.here);
  return shape;
}

double Communication::bytes_of(const Program& program, const Instruction& instruction) const {
  const auto gradient = static_cast<double>(machine_.traffic.gradient_bytes);
  switch (instruction.op) {
    case Op::gather: return static_cast<double>(job_.padded(units_[instruction.unit]) * job_.element_bytes());
    case Op::reduce_scatter: return gradient * static_cast<double>(job_.padded(units_[instruction.unit]));
    case Op::all_reduce: return gradient * static_cast<double>(job_.shard(units_[instruction.unit]));
    case Op::tensor_gradients: {
      double bytes = 0;
      for (const model::Parameter& parameter : units_[instruction.unit].parameters)
        if (model::is_summed(parameter, job_.divides_rows))
          bytes += 4.0 * static_cast<double>(parameter.elements());
      return bytes / job_.degree;
    }
    default: break;
  }
  double bytes = 0;  // of all rows
  for (const Use& use : instruction.uses)
    bytes = std::max(bytes, static_cast<double>(program.buffers[static_cast<size_t>(use.buffer)].bytes));
  return bytes;
}

/// Point to point; the ranks of a node share its link with the pipelines next to this one.
LinkTime Communication::to_one_peer(const Instruction& instruction, int stage) const {
  const bool tie = instruction.op == Op::tie;
  const double bytes =
      tie ? machine_.traffic.gradient_bytes * static_cast<double>(job_.shard(units_[instruction.unit]))
          : static_cast<double>(job_.rows() * job_.spec.width * job_.element_bytes());
  const bool between =
      leaves_node(stage, tie ? (stage == 0 ? job_.pipeline_degree - 1 : 0) : instruction.peer);
  if (!between) return {false, latency_us(false), bytes / machine_.intra_bandwidth * 1e6};
  const int node = layout_.place({0, stage, 0}) / machine_.ranks_per_node;
  int sharing = 0;  // ranks of this stage on the node
  for (int place = node * machine_.ranks_per_node;
       place < std::min(layout_.ranks(), (node + 1) * machine_.ranks_per_node); ++place)
    sharing += layout_.coordinates(place).stage == stage;
  // Of tensor ranks that scatter it one sends what all have, and they gather it in their node.
  const int parts = machine_.traffic.scatters_transfers && !tie ? job_.tensor_degree : 1;
  const double gathered = volume(Op::gather, bytes, parts) / machine_.intra_bandwidth * 1e6;
  return {true, latency_us(true) + gathered,
          bytes * sharing / parts / (machine_.inter_bandwidth * machine_.interfaces) * 1e6};
}

/// What the engine is known to take for so many bytes into or out of each node.
std::optional<double> Communication::engine_us(Op op, double through) const {
  const Traffic& traffic = machine_.traffic;
  if (op == Op::all_reduce) {
    if (traffic.all_reduce_bandwidth == 0) return {};
    return pipelined_us(through, traffic.all_reduce_bandwidth * machine_.interfaces,
                        traffic.all_reduce_latency_us);
  }
  const double bandwidth = op == Op::gather ? traffic.gather_bandwidth : traffic.reduce_bandwidth;
  if (bandwidth == 0) return {};
  return through / (bandwidth * machine_.interfaces) * 1e6;
}

LinkTime Communication::collective(Op op, double bytes, const Shape& shape) const {
  const int hops = op == Op::all_reduce ? 2 : 1;
  if (shape.nodes == 1)
    return {false, latency_us(false) * hops, volume(op, bytes, shape.ranks) / machine_.intra_bandwidth * 1e6};
  const double through =
      shape.sharing * (op == Op::all_reduce ? volume(op, bytes, shape.nodes)
                                            : bytes * (shape.ranks - shape.here) / shape.ranks);
  LinkTime time{true, latency_us(true) * hops,
                through / (machine_.inter_bandwidth * machine_.interfaces) * 1e6};
  // An inner node of a library's trees, and each node of its rings, sends all bytes twice; of two nodes,
  // once.
  const double by_engine =
      op == Op::all_reduce ? shape.sharing * bytes * std::min(shape.nodes - 1, 2) : through;
  std::optional<double> known = engine_us(op, by_engine);
  if (!known && machine_.plans && shape.even) {
    using Kind = CollectiveShape::Kind;
    const Kind kind = op == Op::all_reduce ? Kind::all_reduce
                      : op == Op::gather   ? Kind::gather
                                           : Kind::reduce_scatter;
    const double us =
        machine_.plans({kind, bytes, shape.nodes, shape.here, shape.sharing, machine_.interfaces});
    if (us >= 0) known = us;
  }
  if (!known) return time;
  time.latency_us = std::min(time.latency_us, *known);
  time.work_us = *known - time.latency_us;
  return time;
}

LinkTime Communication::time_of(const Program& program, const Instruction& instruction) {
  if (is_transfer(instruction.op) || instruction.op == Op::tie)
    return to_one_peer(instruction, program.stage);
  return collective(collective_of(instruction.op), bytes_of(program, instruction),
                    shape_of(kind_of(instruction.op), program.stage));
}

}  // namespace loom::program
