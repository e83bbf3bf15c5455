// The event loop of the simulator. A message passes these events; a put inside a node has no `inject` and no
// `wire`:
//
//   send()  ── CPU ──▶ inject ── egress ──▶ wire ── ingress ──▶ land ── CPU ──▶ filed: the wait it was for
//   goes on
//
// Invariants: events are handled in order of (time, when they were made); a resource is reserved in the order
// in which its users ask for it; a lane's position moves only in proceed().
#include "model/simulate.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "model/critical_path.h"

namespace weft::model {
namespace {

using plan::Plan;
using plan::Step;
using plan::StepId;
using plan::StepKind;

enum class EventKind : uint8_t {
  ended,     // a copy, a reduction or a put inside a node is done
  released,  // a put's source may be reused
  inject,    // the sender's CPU has handed a put to its network interface
  wire,      // its first byte is at the receiver's
  land,      // the receiver's CPU can begin to file it
  filed,
  resume,  // a wait that had yielded its core has it again
};

struct Event {
  double at_us = 0;
  uint64_t order = 0;
  double floor_us = 0;  // what was begun upstream ends no sooner
  int32_t rank = 0;     // whose step it is: for messages the sender
  StepId step = 0;
  EventKind kind = EventKind::ended;

  friend bool operator>(const Event& a, const Event& b) {
    return a.at_us != b.at_us ? a.at_us > b.at_us : a.order > b.order;
  }
};

constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kArrived = kNobody - 1;

struct RankState {
  const Plan* plan = nullptr;
  int rank = 0;
  double cpu_free_us = 0;
  double slowdown = 1;
  double copy_rate = 1, reduce_rate = 1, peer_rate = 1;  // bytes/µs
  double finish_us = 0;
  uint64_t first_step = 0;          // this rank's part of the arrays that go over all ranks' steps, …
  uint64_t first_lane = 0;          // … lanes …
  uint64_t first_notification = 0;  // … and notifications
  uint64_t first_edge = 0;          // … and dependencies
};

struct NodeState {
  double egress_free_us = 0, ingress_free_us = 0;
};

/// What the engine reads at once of a peer's memory that it reduces.
constexpr uint64_t kReducedPieceBytes = 64 << 10;

class Simulator {
 public:
  Simulator(std::span<const Plan> plans, const topology::Layout& layout, const Machine& machine,
            const plan::Limits& limits, const SimulateOptions& options)
      : plans_(plans), layout_(layout), machine_(machine), limits_(limits), options_(options) {}

  Result<Simulation> run() {
    for (const Plan& plan : plans_) add_rank(plan);
    nodes_.resize(layout_.nodes());
    for (RankState& rank : ranks_) {
      take_cpu(rank, 0, machine_.call_us);
      const double called = rank.cpu_free_us;
      for (int lane = 0; lane < rank.plan->lanes(); ++lane) advance(rank, lane, kNoStep, called);
    }
    while (!events_.empty() && error_.ok()) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
    if (error_.ok()) error_ = check_ended();
    if (!error_.ok()) return error_;
    return collect();
  }

 private:
  // --- setting up
  // ---------------------------------------------------------------------------------------------------
  void add_rank(const Plan& plan) {
    RankState rank{.plan = &plan, .rank = plan.rank};
    rank.slowdown = machine_.slowdown(static_cast<int>(layout_.on_node(layout_.node_of(plan.rank)).size()));
    const uint64_t working_set = options_.working_set_bytes != 0
                                     ? options_.working_set_bytes
                                     : plan::input_bytes(plan.request, plan.ranks, plan.rank) +
                                           plan::output_bytes(plan.request, plan.ranks, plan.rank);
    const Memory& memory = machine_.memory;
    rank.copy_rate = rate_for(memory, working_set, memory.copy_cached, memory.copy_large);
    rank.reduce_rate = rate_for(memory, working_set, memory.reduce_cached, memory.reduce_large);
    rank.peer_rate = rate_for(memory, working_set, memory.peer_cached, memory.peer_large);
    rank.first_step = step_count_;
    rank.first_lane = lane_at_.size();
    rank.first_notification = waiting_.size();
    rank.first_edge = dependents_.size();
    step_count_ += plan.steps.size();
    lane_at_.insert(lane_at_.end(), plan.lane_begin.begin(), plan.lane_begin.end() - 1);
    waiting_.resize(waiting_.size() + plan.notifications(), kNobody);
    add_dependents(plan);
    if (options_.keep_steps) times_.emplace_back(plan.steps.size());
    ranks_.push_back(rank);
  }

  /// Turns "after" around: for every step the steps that wait for it, [dependents_begin_[s],
  /// dependents_begin_[s + 1]).
  void add_dependents(const Plan& plan) {
    const size_t base = missing_.size(), edges = dependents_.size();
    missing_.resize(base + plan.steps.size(), 0);
    // One more entry a rank than it has steps: its end.
    const size_t begin = dependents_begin_.size();
    dependents_begin_.resize(begin + plan.steps.size() + 1, 0);
    if (!plan.has_dependents) return;
    uint32_t* const count = dependents_begin_.data() + begin;
    for (const Step& step : plan.steps) {
      for (const StepId before : plan.after(step)) ++count[before + 1];
    }
    for (size_t i = 0; i < plan.steps.size(); ++i) count[i + 1] += count[i];
    dependents_.resize(edges + count[plan.steps.size()]);
    std::vector<uint32_t> cursor(count, count + plan.steps.size());
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      missing_[base + id] = plan.steps[id].after_count;
      for (const StepId before : plan.after(plan.steps[id])) dependents_[edges + cursor[before]++] = id;
    }
  }

  static uint32_t notification(const Plan& receiver, const Step& wait) {
    return receiver.wait_begin[wait.peer] + wait.tag;
  }

  // --- lanes
  // --------------------------------------------------------------------------------------------------------
  /// Starts what the lane can start at `now`, `cause` having brought it here.
  void advance(RankState& rank, int lane, StepId cause, double now) {
    const Plan& plan = *rank.plan;
    for (uint32_t& at = lane_at_[rank.first_lane + lane]; at < plan.lane_begin[lane + 1]; ++at) {
      const StepId id = plan.lane_steps[at];
      const Step& step = plan.steps[id];
      if (missing_[rank.first_step + id] > 0) return;  // complete() of the last of them comes back here
      note_ready(rank, id, now, cause);
      if (step.kind != StepKind::wait) return start(rank, id, now);
      uint32_t& waiting = waiting_[rank.first_notification + notification(plan, step)];
      if (waiting != kArrived) {
        waiting = id;  // filed() comes back here
        return;
      }
      note_end(rank, id, now);
      complete(rank, id, now);
      cause = id;
    }
  }

  /// The head of its lane, `id`, lets the lane go on.
  void proceed(RankState& rank, StepId id, double now) {
    const int lane = rank.plan->steps[id].lane;
    ++lane_at_[rank.first_lane + lane];
    advance(rank, lane, id, now);
  }

  /// `id` is done: whoever named it in `after` starts if it is the head of its lane and this was the last.
  /// Called before the own lane proceeds past `id`.
  void complete(RankState& rank, StepId id, double now) {
    const Plan& plan = *rank.plan;
    const uint32_t* const begin = dependents_begin_.data() + rank.first_step + rank_index(rank) + id;
    for (uint32_t edge = begin[0]; edge < begin[1]; ++edge) {
      const StepId dependent = dependents_[rank.first_edge + edge];
      if (--missing_[rank.first_step + dependent] > 0) continue;
      const int lane = plan.steps[dependent].lane;
      const uint32_t at = lane_at_[rank.first_lane + lane];
      if (at < plan.lane_begin[lane + 1] && plan.lane_steps[at] == dependent) {
        advance(rank, lane, id, now);
      }
    }
  }

  // --- work
  // ---------------------------------------------------------------------------------------------------------
  /// Takes the rank's CPU for `service_us` of its full speed from `from` on; returns when it begins.
  double take_cpu(RankState& rank, double from, double service_us) {
    const double start = std::max(from, rank.cpu_free_us);
    rank.cpu_free_us = start + service_us * rank.slowdown;
    return start;
  }

  /// A step's bytes read from a peer of the same node, or written to it, in pieces.
  double single_copy_us(const RankState& rank, const Step& step, uint64_t piece_bytes) const {
    const auto pieces =
        static_cast<double>(step.bytes > piece_bytes ? (step.bytes - 1) / piece_bytes + 1 : 1);
    return pieces * machine_.memory.peer_us + static_cast<double>(step.bytes) / rank.peer_rate;
  }

  void start(RankState& rank, StepId id, double now) {
    const Step& step = rank.plan->steps[id];
    if (step.kind == StepKind::put || step.kind == StepKind::signal) return send(rank, id, now);
    const bool reduces = step.kind == StepKind::reduce;
    const auto bytes = static_cast<double>(step.bytes);
    double service = machine_.step_us;
    for (const plan::Region& source : rank.plan->sources_of(step)) {
      const bool own = source.rank == rank.rank;
      if (!own) service += single_copy_us(rank, step, reduces ? kReducedPieceBytes : step.bytes);
      if (reduces) service += bytes / rank.reduce_rate;
      else if (own) service += bytes / rank.copy_rate;
    }
    const double begin = take_cpu(rank, now, service);
    note_start(rank, id, begin);
    push(rank.cpu_free_us, EventKind::ended, rank, id);
  }

  bool eager(const Step& step, bool same_node) const { return step.bytes <= limits_.eager_bytes(same_node); }

  /// How long a rank's CPU moves a message's payload on its side.
  double cpu_moving_us(const RankState& rank, const Step& step, bool same_node, bool receives) const {
    const Link& link = same_node ? machine_.intra : machine_.inter;
    if (!link.by_cpu || step.kind != StepKind::put) return 0;
    if (!same_node || eager(step, same_node))
      return moving_us(step, link.bytes_per_us);                   // into a slot, and out of it
    return receives ? 0 : single_copy_us(rank, step, step.bytes);  // by the sender
  }

  static double moving_us(const Step& step, double rate) {
    return rate > 0 && step.kind == StepKind::put ? static_cast<double>(step.bytes) / rate : 0;
  }

  /// A CPU's part in a message at either end, without its payload. A handle is made, or looked up, besides.
  double handling_us(const Link& link, const Step& step) const {
    return machine_.step_us + link.overhead_us * (step.exposes != plan::Space::none ? 2 : 1);
  }

  void send(RankState& rank, StepId id, double now) {
    const Step& step = rank.plan->steps[id];
    if (step.peer < 0 || step.peer >= layout_.ranks()) {
      error_ = fail(Code::internal_error, "plan {} of rank {}: step {} sends to rank {} of {}",
                    rank.plan->algorithm, rank.rank, id, step.peer, layout_.ranks());
      return;
    }
    const bool same_node = layout_.same_node(rank.rank, step.peer);
    const Link& link = same_node ? machine_.intra : machine_.inter;
    Traffic& traffic = same_node ? intra_ : inter_;
    ++traffic.messages;
    if (step.kind == StepKind::put) traffic.bytes += step.bytes;
    const double moving = cpu_moving_us(rank, step, same_node, /*receives=*/false);
    const double begin = take_cpu(rank, now, handling_us(link, step) + moving);
    note_start(rank, id, begin);
    if (same_node) {
      // Where an engine moves the bytes, nothing but this put occupies it.
      const double engine = link.by_cpu ? 0 : moving_us(step, link.bytes_per_us);
      push(rank.cpu_free_us, EventKind::ended, rank, id, rank.cpu_free_us + engine);
    } else {
      const double handed_over = begin + handling_us(link, step) * rank.slowdown;
      push(handed_over, EventKind::inject, rank, id, rank.cpu_free_us);
    }
  }

  /// One connection's time for a put between nodes, when nobody else is there. Several interfaces share a
  /// long one.
  double flow_us(const RankState& rank, const Step& step) const {
    const Link& link = machine_.inter;
    return moving_us(step,
                     link.by_cpu ? link.bytes_per_us / rank.slowdown : link.bytes_per_us * machine_.rails);
  }

  void inject(const Event& event) {
    RankState& rank = state_of(event.rank);
    const Step& step = rank.plan->steps[event.step];
    NodeState& node = nodes_[layout_.node_of(event.rank)];
    const double start = std::max(event.at_us, node.egress_free_us);
    const double service = moving_us(step, machine_.node_bytes_per_us());
    node.egress_free_us = start + service;
    const double gone = std::max({start + service, start + flow_us(rank, step), event.floor_us});
    push(start + machine_.inter.alpha_us, EventKind::wire, rank, event.step, gone + machine_.inter.alpha_us);
    push(gone, EventKind::released, rank, event.step);
    proceed(rank, event.step, event.at_us);
  }

  void wire(const Event& event) {
    RankState& sender = state_of(event.rank);
    const Step& step = sender.plan->steps[event.step];
    NodeState& node = nodes_[layout_.node_of(step.peer)];
    const double start = std::max(event.at_us, node.ingress_free_us);
    const double service = moving_us(step, machine_.node_bytes_per_us());
    node.ingress_free_us = start + service;
    const double last_byte = std::max({start + service, start + flow_us(sender, step), event.floor_us});
    const bool streams = machine_.inter.by_cpu;  // the receiver's CPU moves bytes while they come in
    push(streams ? start : last_byte, EventKind::land, sender, event.step, last_byte);
  }

  void land(const Event& event) {
    const RankState& sender = state_of(event.rank);
    const Step& step = sender.plan->steps[event.step];
    RankState& receiver = state_of(step.peer);
    const bool same_node = layout_.same_node(event.rank, step.peer);
    const Link& link = same_node ? machine_.intra : machine_.inter;
    const double moving = cpu_moving_us(receiver, step, same_node, /*receives=*/true);
    take_cpu(receiver, event.at_us, handling_us(link, step) + moving);
    push(std::max(receiver.cpu_free_us, event.floor_us), EventKind::filed, sender, event.step);
  }

  void filed(const Event& event) {
    const RankState& sender = state_of(event.rank);
    const Step& step = sender.plan->steps[event.step];
    RankState& receiver = state_of(step.peer);
    const Plan& plan = *receiver.plan;
    const uint32_t first = plan.wait_begin[event.rank];
    if (step.tag >= plan.wait_begin[event.rank + 1] - first) {
      error_ = fail(Code::internal_error, "plan {} of rank {}: nothing waits for tag {} from rank {}",
                    plan.algorithm, receiver.rank, step.tag, event.rank);
      return;
    }
    uint32_t& waiting = waiting_[receiver.first_notification + first + step.tag];
    const StepId wait = std::exchange(waiting, kArrived);
    if (wait == kNobody || wait == kArrived) return;  // its wait comes later
    note_cause(receiver, wait, event);
    // A rank that waited has given its core away if it is not its own.
    const double resumes = event.at_us + (receiver.slowdown > 1 ? machine_.switch_us : 0);
    if (resumes > event.at_us) return push(resumes, EventKind::resume, receiver, wait);
    resume(receiver, wait, event.at_us);
  }

  void resume(RankState& rank, StepId wait, double now) {
    note_end(rank, wait, now);
    complete(rank, wait, now);
    proceed(rank, wait, now);
  }

  void handle(const Event& event) {
    RankState& rank = state_of(event.rank);
    switch (event.kind) {
      case EventKind::ended: {
        const Step& step = rank.plan->steps[event.step];
        if (step.kind == StepKind::put || step.kind == StepKind::signal) {
          push(std::max(event.at_us, event.floor_us) + machine_.intra.alpha_us, EventKind::land, rank,
               event.step);
          if (event.floor_us > event.at_us) push(event.floor_us, EventKind::released, rank, event.step);
        }
        if (event.floor_us <= event.at_us) {
          note_end(rank, event.step, event.at_us);
          complete(rank, event.step, event.at_us);
        }
        return proceed(rank, event.step, event.at_us);
      }
      case EventKind::released:
        note_end(rank, event.step, event.at_us);
        return complete(rank, event.step, event.at_us);
      case EventKind::inject: return inject(event);
      case EventKind::wire: return wire(event);
      case EventKind::land: return land(event);
      case EventKind::filed: return filed(event);
      case EventKind::resume: return resume(rank, event.step, event.at_us);
    }
  }

  // --- bookkeeping
  // --------------------------------------------------------------------------------------------------
  void push(double at_us, EventKind kind, const RankState& rank, StepId step, double floor_us = 0) {
    events_.push({at_us, next_order_++, floor_us, rank.rank, step, kind});
  }

  RankState& state_of(int rank) { return ranks_[rank]; }
  size_t rank_index(const RankState& rank) const { return &rank - ranks_.data(); }
  StepTimes* times_of(const RankState& rank, StepId id) {
    return options_.keep_steps ? &times_[rank_index(rank)][id] : nullptr;
  }

  void note_ready(const RankState& rank, StepId id, double now, StepId cause) {
    if (StepTimes* times = times_of(rank, id)) {
      *times = {now, now, now, cause == kNoStep ? -1 : rank.rank, cause};
    }
  }
  void note_start(const RankState& rank, StepId id, double now) {
    if (StepTimes* times = times_of(rank, id)) times->start_us = now;
  }
  void note_cause(const RankState& rank, StepId id, const Event& message) {
    if (StepTimes* times = times_of(rank, id))
      times->cause_rank = message.rank, times->cause_step = message.step;
  }
  void note_end(RankState& rank, StepId id, double now) {
    rank.finish_us = std::max(rank.finish_us, now);
    if (StepTimes* times = times_of(rank, id)) times->end_us = now;
  }

  Status check_ended() const {
    for (const RankState& rank : ranks_) {
      const Plan& plan = *rank.plan;
      for (int lane = 0; lane < plan.lanes(); ++lane) {
        const uint32_t at = lane_at_[rank.first_lane + lane];
        if (at == plan.lane_begin[lane + 1]) continue;
        const StepId id = plan.lane_steps[at];
        const Step& step = plan.steps[id];
        return fail(Code::internal_error, "plan {} does not end: rank {} is stuck in lane {} at step {}, {}",
                    plan.algorithm, rank.rank, lane, id,
                    step.kind == StepKind::wait && missing_[rank.first_step + id] == 0
                        ? fmt::format("waiting for tag {} from rank {}", step.tag, step.peer)
                        : fmt::format("which {} steps keep from starting", missing_[rank.first_step + id]));
      }
    }
    return {};
  }

  Simulation collect() {
    Simulation result;
    result.intra = intra_;
    result.inter = inter_;
    for (const RankState& rank : ranks_) {
      result.finish_us.push_back(rank.finish_us);
      result.total_us = std::max(result.total_us, rank.finish_us);
    }
    result.steps = std::move(times_);
    if (options_.keep_steps) result.critical = find_critical_path(plans_, layout_, result.steps);
    return result;
  }

  const std::span<const Plan> plans_;
  const topology::Layout& layout_;
  const Machine& machine_;
  const plan::Limits& limits_;
  const SimulateOptions& options_;

  std::vector<RankState> ranks_;
  std::vector<NodeState> nodes_;
  uint64_t step_count_ = 0;
  std::vector<uint32_t> lane_at_;  // position in Plan::lane_steps
  std::vector<uint32_t> missing_;  // unfinished steps that a step names in `after`
  std::vector<uint32_t> dependents_begin_, dependents_;
  std::vector<uint32_t> waiting_;  // of a notification: the wait step that is there, kArrived or kNobody
  std::vector<std::vector<StepTimes>> times_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  Traffic intra_, inter_;
  Status error_;
};

}  // namespace

Result<Simulation> simulate(std::span<const Plan> plans, const topology::Layout& layout,
                            const Machine& machine, const plan::Limits& limits,
                            const SimulateOptions& options) {
  if (static_cast<int>(plans.size()) != layout.ranks()) {
    return fail(Code::invalid_argument, "simulate: {} plans for {} ranks", plans.size(), layout.ranks());
  }
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    if (plans[rank].rank == static_cast<int>(rank) && plans[rank].ranks == layout.ranks()) continue;
    return fail(Code::invalid_argument, "simulate: plan {} is rank {}'s of {}, must be rank {}'s of {}", rank,
                plans[rank].rank, plans[rank].ranks, rank, layout.ranks());
  }
  return Simulator(plans, layout, machine, limits, options).run();
}

}  // namespace weft::model
