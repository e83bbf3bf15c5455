// Events in the order of time: a stage goes on through its list when what it waits for is over.
#include "program/simulate.h"

#include <algorithm>
#include <map>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "program/collective_cost.h"
#include "program/links.h"

namespace loom::program {
namespace {

/// Links of a stage, and queues of what it sends.
enum Way { kInside, kOut, kIn, kTier, kCores, kWays };
constexpr int kLanes = 16;                                  // at most; transfers have queues behind these
enum SendQueue { kForward, kBackward, kTie, kSendQueues };  // those of transfers are matched in order
constexpr int kComputing = kLanes + kSendQueues;            // the queue of lane 0 on shared cores
constexpr int kQueues = kComputing + 1;

Op partner_of(Op op) {
  switch (op) {
    case Op::send: return Op::receive;
    case Op::receive: return Op::send;
    case Op::send_back: return Op::receive_back;
    case Op::receive_back: return Op::send_back;
    default: return Op::tie;
  }
}

/// One rank of each stage.
class Simulation {
 public:
  Simulation(const Job& job, std::span<const Program* const> programs, const Machine& machine)
      : job_(job),
        layout_(job.layout()),
        programs_(programs),
        machine_(machine),
        units_(job.held_units()),
        communication_(job, machine, units_),
        stages_(programs.size()) {
    find_shared_cores();
  }

  PipelineForecast run() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      const size_t count = programs_[s]->instructions.size();
      stages_[s].forecast.intervals.resize(count);
      stages_[s].over.resize(count);
      if (machine_.traffic.hidden < 1) stages_[s].forecast.held_us.resize(count);
      wakes_.emplace(0.0, static_cast<int>(s));
    }
    while (true) {
      const double wake = wakes_.empty() ? Links::kNever : wakes_.top().first;
      const double next = std::min(wake, links_.next_us());
      if (next == Links::kNever) return result();
      if (links_.next_us() <= next) {
        for (const int flow : links_.advance()) end(flow, next);
      } else {
        const int s = wakes_.top().second;
        wakes_.pop();
        advance(s, next);
      }
    }
  }

 private:
  struct Stage {
    Forecast forecast;
    size_t next = 0;
    double now = 0, busy_us = 0, met_us = 0;  // computed before the norm; when all came to it
    std::vector<bool> over;                   // of each instruction on another lane
    double arrived_us = -1;                   // at the norm; -1: not yet
    bool called = false;                      // for the next instruction
    bool computing = false;                   // on cores that others share
    int cores = 0;                            // the link of those
    double core_share = 0;                    // of these cores, that its ranks ask for
    double deferred_us = 0;                   // of AllReduces that the engine does not hide
    double wake_us = -1;                      // when it goes on by itself
    int collectives = 0;                      // in flight
    std::map<std::tuple<Op, int, int>, size_t>
        waiting;  // transfers without their other side, by unit, microbatch
  };
  /// Whose interval a flow is.
  struct Sides {
    int stage;
    size_t instruction;
    int other = -1;
    size_t other_instruction = 0;
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

  /// Goes on from `now` as far as it comes without waiting.
  void advance(int s, double now) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    const std::vector<Instruction>& list = programs_[static_cast<size_t>(s)]->instructions;
    while (stage.next < list.size() && stage.now <= now && !stage.computing) {
      const Instruction& instruction = list[stage.next];
      if (!stage.called) {
        for (const int before : instruction.after)
          if (!stage.over[static_cast<size_t>(before)]) return;
        if (instruction.op == Op::norm && stage.deferred_us == 0 && !meet(s, now)) return;
        stage.forecast.exposed_us += now - stage.now;
        stage.now = now;
        if (instruction.op == Op::norm && stage.deferred_us > 0) {
          hold(stage, std::exchange(stage.deferred_us, 0));
          continue;
        }
        if (is_called(instruction.op) && machine_.call_us > 0) {
          stage.called = true;
          stage.now += machine_.call_us;
          continue;
        }
      }
      stage.called = false;
      issue(s, instruction);
      ++stage.next;
    }
    if (stage.now > now && !stage.computing && stage.wake_us != stage.now)
      wakes_.emplace(stage.wake_us = stage.now, s);
  }

  /// Whether all stages have come to the norm, this one at `now`.
  bool meet(int s, double now) {
    Stage& own = stages_[static_cast<size_t>(s)];
    const bool came = own.arrived_us < 0;
    if (came) own.arrived_us = now;
    double last = 0;
    for (const Stage& stage : stages_) {
      if (stage.arrived_us < 0) return false;
      last = std::max(last, stage.arrived_us);
    }
    if (came)
      for (size_t other = 0; other < stages_.size(); ++other)
        if (static_cast<int>(other) != s) wakes_.emplace(now, static_cast<int>(other));
    own.met_us = last;
    own.busy_us = own.forecast.compute_us;
    return true;
  }

  void issue(int s, const Instruction& instruction) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    if (instruction.lane == 0) return compute(s, instruction);
    if (is_transfer(instruction.op) || (instruction.op == Op::tie && stages_.size() > 1))
      return transfer(s, instruction);
    const int queue = s * kQueues + instruction.lane;
    if (is_offloading(instruction.op)) {
      const Program& program = *programs_[static_cast<size_t>(s)];
      const auto bytes =
          static_cast<double>(program.buffers[static_cast<size_t>(instruction.buffer(Role::stored))].bytes);
      return begin(queue, {false, 0, bytes / machine_.tier_bandwidth * 1e6}, way(s, kTier), Links::kNone,
                   {s, stage.next});
    }
    LinkTime time = communication_.time_of(*programs_[static_cast<size_t>(s)], instruction);
    const double held = (1 - machine_.traffic.hidden) * time.alone_us();
    // Gradients are reduced after the last backward pass: no stage waits for those of the stages behind it.
    const bool deferred = instruction.op == Op::all_reduce && held > 0;
    if (deferred) {
      stage.deferred_us += held;
      time.latency_us *= machine_.traffic.hidden;
      time.work_us *= machine_.traffic.hidden;
    }
    ++stage.collectives;
    begin(queue, time, way(s, time.between_nodes ? kOut : kInside),
          time.between_nodes ? way(s, kIn) : Links::kNone, {s, stage.next});
    if (held > 0 && !deferred) hold(stage, held);
  }

  /// The rank waits at its next instruction for what its engine does not hide.
  static void hold(Stage& stage, double us) {
    stage.forecast.held_us[stage.next] = us;
    stage.forecast.exposed_us += us;
    stage.now += us;
  }

  void compute(int s, const Instruction& instruction) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    double duration = 0;
    if (is_compute(instruction.op)) {
      // Work of multiprocessors that a collective has taken is left to the others.
      const bool beside = stage.collectives > 0 && machine_.traffic.hidden > 0;
      const double left = 1 - (beside ? machine_.traffic.multiprocessors : 0);
      const ComputeTime time = computing(instruction) * (1 / left);
      stage.forecast.computing += time;
      duration = time.all_us();
    } else {
      duration = streamed_us(s, instruction);
    }
    if (crowded_ && duration > 0) {
      stage.computing = true;
      return begin(s * kQueues + kComputing, {false, 0, duration}, stage.cores, Links::kNone, {s, stage.next},
                   stage.core_share);
    }
    stage.forecast.intervals[stage.next] = {stage.now, stage.now + duration};
    stage.over[stage.next] = true;
    stage.forecast.compute_us += duration;
    stage.now += duration;
  }

  /// Blocks are alike, with a window and without, so that few times are computed.
  const ComputeTime& computing(const Instruction& i) {
    constexpr int kAlike = -1, kWithWindow = -2;
    const bool alike = machine_.unit_us.empty() && i.unit > 0 && i.unit <= job_.spec.layers;
    const int kind = job_.spec.window_of(i.unit - 1) > 0 ? kWithWindow : kAlike;
    const auto [found, is_new] = computing_.try_emplace({i.op, alike ? kind : i.unit, i.first});
    if (is_new) found->second = compute_time(job_, machine_, i.unit, i.op, {std::max(i.first, 0), i.last});
    return found->second;
  }

  void begin(int queue, const LinkTime& time, int link, int second, const Sides& sides, double share = 1) {
    links_.add(stages_[static_cast<size_t>(sides.stage)].now, queue, time.latency_us, time.work_us, link,
               second, share);
    sides_.push_back(sides);
  }
  /// The second side to come begins it.
  void transfer(int s, const Instruction& own) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    const bool tie = own.op == Op::tie;
    const int peer = tie ? (s == 0 ? static_cast<int>(stages_.size()) - 1 : 0) : own.peer;
    Stage& other = stages_[static_cast<size_t>(peer)];
    const auto found = other.waiting.find({partner_of(own.op), own.unit, own.microbatch});
    if (found == other.waiting.end()) {
      stage.forecast.intervals[stage.next] = {stage.now, stage.now};
      stage.waiting[{own.op, own.unit, own.microbatch}] = stage.next;
      return;
    }
    const bool sends = own.op == Op::send || own.op == Op::send_back;
    const int sender = sends ? s : peer, receiver = sends ? peer : s;
    const SendQueue queue = tie ? kTie : own.op == Op::send || own.op == Op::receive ? kForward : kBackward;
    const LinkTime time = communication_.time_of(*programs_[static_cast<size_t>(s)], own);
    const bool between = time.between_nodes;
    begin(sender * kQueues + kLanes + queue, time, between ? way(sender, kOut) : Links::kNone,
          between ? way(receiver, kIn) : Links::kNone, {s, stage.next, peer, found->second});
    other.waiting.erase(found);
  }

  static int way(int stage, Way which) { return stage * kWays + which; }

  void end(int flow, double now) {
    const Sides sides = sides_[static_cast<size_t>(flow)];  // a copy: advance() adds others
    const Interval interval = {links_.begin_us(flow), now};
    const auto finish = [&](int s, size_t instruction) {
      Stage& stage = stages_[static_cast<size_t>(s)];
      stage.forecast.intervals[instruction] = interval;
      stage.over[instruction] = true;
    };
    finish(sides.stage, sides.instruction);
    const Instruction& instruction =
        programs_[static_cast<size_t>(sides.stage)]->instructions[sides.instruction];
    const Op op = instruction.op;
    if (instruction.lane == 0) return end_computing(sides.stage, interval);
    if (sides.other < 0 && !is_offloading(op)) --stages_[static_cast<size_t>(sides.stage)].collectives;
    if (sides.other >= 0) finish(sides.other, sides.other_instruction);
    advance(sides.stage, now);
    if (sides.other >= 0) advance(sides.other, now);
  }

  void end_computing(int s, const Interval& interval) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    stage.computing = false;
    stage.forecast.compute_us += interval.end_us - interval.begin_us;
    stage.now = interval.end_us;
    advance(s, interval.end_us);
  }

  /// Whether ranks ask for more cores than there are. What a stage's ranks on a machine ask for is a part of
  /// its cores, since all of them compute at the same time.
  void find_shared_cores() {
    const SharedCores& shared = machine_.shared;
    if (shared.ranks == 0 || shared.cores >= shared.ranks * shared.threads) return;
    crowded_ = true;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const int place = layout_.place({0, static_cast<int>(s), 0}),
                first = place / shared.ranks * shared.ranks;
      int ranks = 0;
      for (int other = first; other < std::min(layout_.ranks(), first + shared.ranks); ++other)
        ranks += layout_.coordinates(other).stage == static_cast<int>(s);
      // One link for each machine, that of its first rank's stage.
      stages_[s].cores = way(layout_.coordinates(first).stage, kCores);
      stages_[s].core_share = ranks * shared.threads / shared.cores;
    }
  }

  /// Sums, squares and the optimizer: what passes through memory. What ranks tell each other takes a latency.
  double streamed_us(int s, const Instruction& instruction) {
    const auto streamed = [&](KernelKind kind, double bytes) { return cost_us(machine_, {kind, 0, bytes}); };
    const Program& program = *programs_[static_cast<size_t>(s)];
    const auto shard = [&](int unit) {
      return static_cast<double>(job_.shard(units_[static_cast<size_t>(unit)]));
    };
    switch (instruction.op) {
      case Op::accumulate:
        if (machine_.traffic.fuses_sums) return 0;
        return streamed(
            KernelKind::accumulate,
            3.0 * static_cast<double>(
                      program.buffers[static_cast<size_t>(instruction.buffer(Role::shard))].bytes));
      case Op::step:
        // Reads gradient, master and slots, and writes the last two.
        return streamed(
            KernelKind::optimizer,
            4.0 * static_cast<double>(3 + 2 * job_.optimizer->slots.size()) * shard(instruction.unit));
      case Op::squares: return streamed(KernelKind::squares, 4 * shard(instruction.unit));
      case Op::norm: {
        const bool alone = job_.degree * job_.pipeline_degree * job_.tensor_degree == 1;
        const int place = layout_.place({0, program.stage, 0});
        const bool between = layout_.spans_nodes(GroupKind::model, place, machine_.ranks_per_node);
        return alone ? 0 : communication_.latency_us(between);
      }
      case Op::mean_loss:
        return job_.world == 1 ? 0 : communication_.latency_us(job_.world > machine_.ranks_per_node);
      default: return 0;
    }
  }

  const Job& job_;
  const Layout layout_;
  std::span<const Program* const> programs_;
  const Machine& machine_;
  const std::vector<model::Unit> units_;
  Communication communication_;
  std::vector<Stage> stages_;
  bool crowded_ = false;
  Links links_;
  std::vector<Sides> sides_;  // of each flow
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>> wakes_;
  std::map<std::tuple<Op, int, int>, ComputeTime> computing_;
};

}  // namespace

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
