// Lists against each other: of every stage, lane 0 is a clock, and each kind of link another.
#include "program/simulate.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "model/split_compute.h"

namespace loom::program {
namespace {

/// A unit's work in forward passes: backward computes two products for each of them.
double passes_of(Op op) { return op == Op::loss ? 3 : op == Op::backward ? 2 : 1; }

/// Of attention's products of pairs of tokens, for one token and element of its width: half of all pairs
/// where a token sees only those before it.
double pair_flops(const Job& job) { return (job.spec.causal ? 2.0 : 4.0) * static_cast<double>(job.tokens); }

double compute_flops(const Job& job, int unit, Op op) {
  const model::ModelSpec& spec = job.spec;
  const double rows = static_cast<double>(job.batch) * job.tokens;
  const double width = spec.width;
  double forward = 0;
  if (unit > 0 && unit <= spec.layers)
    forward =
        rows * (2.0 * (4.0 * width * width + 2.0 * width * spec.feed_forward) + width * pair_flops(job));
  if (unit > spec.layers) forward = static_cast<double>(job.head_rows()) * 2.0 * spec.head_weights();
  return passes_of(op) * forward;
}

/// The part of a rank's products of a unit that a piece has: those on rows have none.
double part_of(const Job& job, const Instruction& i) {
  const model::ModelSpec& spec = job.spec;
  if (i.piece < 0) return 1;
  if (i.unit > spec.layers) {
    if (spec.task == model::Task::classification) return i.piece;
    const double pairs = model::head_pairs(job.share(), job.split_head_rows());
    const int piece = job.picks_rows() ? i.piece - 1 : i.piece;
    if (piece <= 0 || piece > 2 * pairs) return 0;
    if (i.op == Op::evaluate) return piece % 2 == 1 ? 1 / pairs : 0;
    return (piece % 2 == 1 ? 1.0 : 2.0) / 3 / pairs;
  }
  const double projections = 8.0 * spec.width, heads = pair_flops(job);
  const double hidden = 4.0 * spec.feed_forward, all = projections + heads + hidden;
  if (i.op != Op::backward)
    return i.piece == 1 ? (projections + heads) / all : i.piece == 3 ? hidden / all : 0;
  // Backward has the products twice, for what was read and for the matrix; heads have no matrix.
  switch (i.piece) {
    case 1: return hidden / (2 * all);
    case 2:
    case 4: return hidden / (4 * all);
    case 5: return (projections + 2 * heads) / (2 * all);
    case 6: return projections / (2 * all);
    default: return 0;
  }
}

/// One direction of a node's link: when it is taken. Stages are simulated in turn and not in the order of
/// time, so what is sent may find a place before what was put there earlier.
class Direction {
 public:
  /// The first moment from `begin` on when the link is free for so long.
  double free_from(double begin, double duration) const {
    auto one = std::partition_point(taken_.begin(), taken_.end(),
                                    [&](const Interval& earlier) { return earlier.end_us <= begin; });
    for (; one != taken_.end() && one->begin_us < begin + duration; ++one) begin = one->end_us;
    return begin;
  }
  void take(double begin, double end) {
    const auto later = std::partition_point(taken_.begin(), taken_.end(),
                                            [&](const Interval& one) { return one.begin_us <= begin; });
    taken_.insert(later, {begin, end});
  }

 private:
  std::vector<Interval> taken_;  // ascending, apart
};

/// Takes both for so long, as soon as they are free together, and says from when.
double take_both(Direction& outward, Direction& inward, double begin, double duration) {
  for (double at = -1; at != begin;) {
    at = begin;
    begin = inward.free_from(outward.free_from(begin, duration), duration);
  }
  outward.take(begin, begin + duration);
  inward.take(begin, begin + duration);
  return begin;
}

/// One rank of each stage; stages take turns, each as far as it comes.
class Simulation {
 public:
  Simulation(const Job& job, std::span<const Program* const> programs, const Machine& machine)
      : job_(job),
        layout_(job.layout()),
        programs_(programs),
        machine_(machine),
        units_(job.held_units()),
        stages_(programs.size()) {}

  PipelineForecast run() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      stages_[s].forecast.intervals.resize(programs_[s]->instructions.size());
      stages_[s].known.resize(programs_[s]->instructions.size());
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < stages_.size(); ++s) moved |= advance(static_cast<int>(s));
    }
    return result();
  }

 private:
  struct Stage {
    Forecast forecast;
    size_t next = 0;
    double now = 0, busy_us = 0, met_us = 0;  // computed before the norm; when all came to it
    double link_free[3] = {0, 0, 0};          // inside nodes, between nodes, to the tier
    std::vector<bool> known;                  // of each instruction: whether its interval is final
    double arrived_us = -1;                   // at the norm; -1: not yet
    std::map<std::tuple<Op, int, int>, size_t>
        waiting;                         // transfers without their other side, by unit, microbatch
    std::map<int, double> channel_free;  // transfers are matched in their order
    Direction outward, inward;           // of its node's link, which transfers and collectives share
  };

  PipelineForecast result() {
    PipelineForecast result;
    double busy = 0, met = 0;
    for (Stage& stage : stages_) {
      stage.forecast.step_us = stage.now;
      stage.forecast.call_us = machine_.call_us;
      result.step_us = std::max(result.step_us, stage.now);
      busy += stage.busy_us;
      met = std::max(met, stage.met_us);
      result.stages.push_back(std::move(stage.forecast));
    }
    if (met > 0) result.bubble = 1 - busy / static_cast<double>(stages_.size()) / met;
    return result;
  }

  /// Issues what can be issued; whether anything was.
  bool advance(int s) {
    Stage& stage = stages_[s];
    const std::vector<Instruction>& list = programs_[s]->instructions;
    const size_t begin = stage.next;
    for (; stage.next < list.size(); ++stage.next) {
      const Instruction& instruction = list[stage.next];
      double start = stage.now;
      bool ready = true;
      for (const int before : instruction.after) {
        ready &= stage.known[before];
        start = std::max(start, stage.forecast.intervals[before].end_us);
      }
      if (!ready || (instruction.op == Op::norm && !meet(s, start))) break;
      if (instruction.op == Op::norm) {
        start = stage.met_us;
        stage.busy_us = stage.forecast.compute_us;
      }
      stage.forecast.exposed_us += start - stage.now;
      stage.now = start;
      issue(s, instruction);
    }
    return stage.next > begin;
  }

  /// Whether all stages have come to the norm, this one at `now`.
  bool meet(int s, double now) {
    stages_[s].arrived_us = now;
    double last = 0;
    for (const Stage& stage : stages_) {
      if (stage.arrived_us < 0) return false;
      last = std::max(last, stage.arrived_us);
    }
    stages_[s].met_us = last;
    return true;
  }

  void issue(int s, const Instruction& instruction) {
    Stage& stage = stages_[s];
    Interval& interval = stage.forecast.intervals[stage.next];
    stage.known[stage.next] = true;
    if (is_called(instruction.op)) stage.now += machine_.call_us;
    if (is_transfer(instruction.op) || (instruction.op == Op::tie && stages_.size() > 1))
      return transfer(s, instruction);
    const double duration = duration_of(instruction, programs_[s]->stage);
    if (instruction.lane == 0) {
      interval = {stage.now, stage.now + duration};
      stage.forecast.compute_us += duration;
      stage.now += duration;
    } else {
      const bool to_tier = is_offloading(instruction.op), between = !to_tier && leaves_node(instruction, s);
      double& link = stage.link_free[to_tier ? 2 : between ? 1 : 0];
      double begin = std::max(stage.now, link);
      if (between && stages_.size() > 1) begin = take_both(stage.outward, stage.inward, begin, duration);
      link = begin + duration;
      interval = {begin, link};
    }
  }

  /// The second side to come decides when it begins.
  void transfer(int s, const Instruction& own) {
    Stage& stage = stages_[s];
    const size_t index = stage.next;
    const int peer = own.op == Op::tie ? (s == 0 ? static_cast<int>(stages_.size()) - 1 : 0) : own.peer;
    const Op partner = own.op == Op::send           ? Op::receive
                       : own.op == Op::receive      ? Op::send
                       : own.op == Op::send_back    ? Op::receive_back
                       : own.op == Op::receive_back ? Op::send_back
                                                    : Op::tie;
    stage.forecast.intervals[index] = {stage.now, stage.now};
    Stage& other = stages_[peer];
    const auto found = other.waiting.find({partner, own.unit, own.microbatch});
    if (found == other.waiting.end()) {
      stage.known[index] = false;
      stage.waiting[{own.op, own.unit, own.microbatch}] = index;
      return;
    }
    Interval& there = other.forecast.intervals[found->second];
    const bool sends = own.op == Op::send || own.op == Op::send_back;
    Stage &sender = sends ? stage : other, &receiver = sends ? other : stage;
    double& channel = sender.channel_free[own.op == Op::send || own.op == Op::receive ? 0 : 1];
    const double duration = duration_of(own, programs_[s]->stage);
    double begin = std::max({stage.now, there.begin_us, channel});
    if (own.op != Op::tie && leaves_node(own, s))
      begin = take_both(sender.outward, receiver.inward, begin, duration);
    channel = begin + duration;
    stage.forecast.intervals[index] = there = {begin, channel};
    other.known[found->second] = true;
    other.waiting.erase(found);
  }

  GroupKind kind_of(const Instruction& instruction) const {
    if (is_transfer(instruction.op)) return GroupKind::pipeline;
    if (instruction.op == Op::tie) return GroupKind::ends;
    if (is_exchange(instruction.op)) return GroupKind::tensor;
    return instruction.op == Op::all_reduce ? GroupKind::replication : GroupKind::partition;
  }

  bool leaves_node(const Instruction& instruction, int stage) const {
    const int place = layout_.place({0, stage, 0});
    if (is_transfer(instruction.op))
      return layout_.place({0, instruction.peer, 0}) / machine_.ranks_per_node !=
             place / machine_.ranks_per_node;
    return layout_.spans_nodes(kind_of(instruction), place, machine_.ranks_per_node);
  }

  double duration_of(const Instruction& instruction, int stage) const {
    const auto streamed = [&](double bytes) { return bytes / machine_.memory_bandwidth * 1e6; };
    const double shard = instruction.unit < 0 ? 0 : static_cast<double>(job_.shard(units_[instruction.unit]));
    if (is_compute(instruction.op)) return compute_us(job_, machine_, instruction);
    switch (instruction.op) {
      case Op::accumulate:
        return streamed(
            3.0 * static_cast<double>(programs_[stage]->buffers[instruction.buffer(Role::shard)].bytes));
      case Op::step: return streamed(28 * shard);  // reads 4 values, writes 3
      case Op::norm: {
        double elements = 0;
        for (const int unit : owned_units(job_, stage))
          elements += static_cast<double>(job_.shard(units_[unit]));
        const int place = layout_.place({0, stage, 0});
        const bool alone = layout_.peers(GroupKind::model, place).size() == 1;
        return streamed(4 * elements) +
               (alone ? 0 : latency(layout_.spans_nodes(GroupKind::model, place, machine_.ranks_per_node)));
      }
      case Op::send:
      case Op::receive:
      case Op::send_back:
      case Op::receive_back:
      case Op::tie: return to_one_peer(instruction, stage);
      case Op::tensor_gather:
      case Op::tensor_all_reduce:
      case Op::tensor_reduce_scatter:
      case Op::tensor_gradients: return exchange(instruction, stage);
      case Op::offload:
      case Op::load:
        return static_cast<double>(
                   programs_[static_cast<size_t>(stage)]->buffers[instruction.buffer(Role::stored)].bytes) /
               machine_.tier_bandwidth * 1e6;
      default: return collective(instruction, stage);
    }
  }

  /// Point to point; the ranks of a node share its link with the pipelines next to this one.
  double to_one_peer(const Instruction& instruction, int stage) const {
    const double bytes = instruction.op == Op::tie
                             ? 4.0 * static_cast<double>(job_.shard(units_[instruction.unit]))
                             : static_cast<double>(job_.rows()) * job_.spec.width * job_.element_bytes();
    if (!leaves_node(instruction, stage)) return latency(false) + bytes / machine_.intra_bandwidth * 1e6;
    const int node = layout_.place({0, stage, 0}) / machine_.ranks_per_node;
    int sharing = 0;  // ranks of this stage on the node
    for (int place = node * machine_.ranks_per_node;
         place < std::min(layout_.ranks(), (node + 1) * machine_.ranks_per_node); ++place)
      sharing += layout_.coordinates(place).stage == stage;
    return latency(true) + bytes * sharing / machine_.inter_bandwidth * 1e6;
  }

  double latency(bool between_nodes) const {
    return between_nodes ? machine_.inter_latency_us : machine_.intra_latency_us;
  }

  /// Exchanges of a tensor group: all its ranks on one node, or a node's ranks sharing its link.
  double exchange(const Instruction& instruction, int stage) const {
    const Program& program = *programs_[static_cast<size_t>(stage)];
    double bytes = 0;  // of all rows, or of a gradient
    for (const Use& use : instruction.uses)
      bytes = std::max(bytes, static_cast<double>(program.buffers[static_cast<size_t>(use.buffer)].bytes));
    if (instruction.op == Op::tensor_gradients) {
      bytes = 0;
      for (const model::Parameter& parameter : units_[instruction.unit].parameters)
        if (model::is_of_rows(parameter)) bytes += 4.0 * static_cast<double>(parameter.elements());
      bytes /= job_.degree;
    }
    const bool twice = instruction.op == Op::tensor_all_reduce || instruction.op == Op::tensor_gradients;
    const double sent = volume(twice ? Op::all_reduce : Op::gather, bytes, job_.tensor_degree);
    const bool between = leaves_node(instruction, stage);
    const double bandwidth =
        between ? machine_.inter_bandwidth / machine_.ranks_per_node : machine_.intra_bandwidth;
    return latency(between) * (twice ? 2 : 1) + sent / bandwidth * 1e6;
  }

  double collective(const Instruction& instruction, int stage) const {
    const bool all_reduce = instruction.op == Op::all_reduce;
    const int ranks = all_reduce ? job_.replicas() : job_.degree;
    const double elements = static_cast<double>(all_reduce ? job_.shard(units_[instruction.unit])
                                                           : job_.padded(units_[instruction.unit]));
    const double bytes = elements * (instruction.op == Op::gather ? job_.element_bytes() : 4);
    const bool between = leaves_node(instruction, stage);
    if (!between)
      return latency(false) * (all_reduce ? 2 : 1) +
             volume(instruction.op, bytes, ranks) / machine_.intra_bandwidth * 1e6;
    // A node's ranks share its link. A gather over nodes brings into a node what its own ranks do not have.
    const int place = layout_.place({0, stage, 0}), node = place / machine_.ranks_per_node;
    int here = 0;         // members of the group on this node; as many groups share its link as fit beside it
    std::set<int> nodes;  // which need not have equally many members
    for (const int peer : layout_.peers(kind_of(instruction), place)) {
      here += peer / machine_.ranks_per_node == node;
      nodes.insert(peer / machine_.ranks_per_node);
    }
    const int sharing = std::max(1, std::min(machine_.ranks_per_node, job_.world) / here);
    const double through =
        sharing * (all_reduce ? volume(instruction.op, bytes, static_cast<int>(nodes.size()))
                              : bytes * (job_.degree - here) / job_.degree);
    return latency(true) * (all_reduce ? 2 : 1) + through / machine_.inter_bandwidth * 1e6;
  }

  const Job& job_;
  const Layout layout_;
  std::span<const Program* const> programs_;
  const Machine& machine_;
  std::vector<model::Unit> units_;
  std::vector<Stage> stages_;
};

}  // namespace

double volume(Op op, double bytes, int ranks) {
  return bytes * (ranks - 1) / ranks * (op == Op::all_reduce ? 2 : 1);
}

double compute_us(const Job& job, const Machine& machine, int unit, Op op) {
  if (!machine.unit_us.empty()) {
    const bool again = job.recomputes(unit);
    return machine.unit_us[static_cast<size_t>(unit)] * passes_of(op) / (again ? 4 : 3) / job.tensor_degree;
  }
  return compute_flops(job, unit, op) / job.tensor_degree / machine.flops * 1e6;
}

double compute_us(const Job& job, const Machine& machine, const Instruction& instruction) {
  return compute_us(job, machine, instruction.unit, instruction.op) * part_of(job, instruction);
}

PipelineForecast simulate(const Job& job, const std::vector<Program>& programs, const Machine& machine) {
  std::vector<const Program*> pointers;
  for (const Program& program : programs) pointers.push_back(&program);
  return Simulation(job, pointers, machine).run();
}

Forecast simulate(const Job& job, const Program& program, const Machine& machine) {
  const Program* const one[] = {&program};
  return Simulation(job, one, machine).run().stages.front();
}

}  // namespace loom::program
