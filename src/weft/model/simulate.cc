// The event loop of the simulator. A message passes these events; a put inside a node has none between
// `ended` and `land`, and one of several stripes has a `wire` for each:
//
//   send()  ── CPU ──▶ inject ── egress ──▶ (core ──▶) wire ── ingress ──▶ land ── CPU ──▶ filed: its wait
//   goes on
//
// Of calls in a row a rank has the state of the one that it is in; what comes for a later one is kept until
// it begins that (`ahead_`), as the engine's stash and the transports' buffers do.
//
// Invariants: events are handled in the order of event_queue.h; a resource is reserved in the order in which
// its users ask for it; a lane's position moves only in proceed(). What an event does touches one rank and
// its node, and reaches others by events only: that is what makes symmetry exact.
#include "model/simulate.h"

#include <algorithm>
#include <utility>

#include "model/cores.h"
#include "model/critical_path.h"
#include "model/event_queue.h"
#include "model/network.h"
#include "model/script.h"
#include "model/workers.h"

namespace weft::model {
namespace {

using plan::Plan;
using plan::Step;
using plan::StepId;
using plan::StepKind;

constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kArrived = kNobody - 1;
/// Where CPUs move the bytes, the kernel keeps so much of what was written and has not left yet: unsent_bytes
/// of transport/tcp_transport.h, where what is on its way has no closer bound.
constexpr uint64_t kUnsentBytes = 256 << 10;

double kept_us(const Machine& machine, const topology::Layout& layout) {
  const uint64_t bound = flight_bytes(machine, layout);
  const uint64_t bytes = bound > 0 ? std::min(bound, kUnsentBytes) : kUnsentBytes;
  return static_cast<double>(bytes) / machine.nic_bytes_per_us;
}

struct RankState {
  const Script* script = nullptr;
  const Plan* plan = nullptr;  // the script's
  int rank = 0, node = 0, local = 0;
  size_t worker = 0;  // its number among those simulated
  double finish_us = 0;
  double halfway_us = 0;       // when it had done the first half of its calls, …
  double halfway_used_us = 0;  // … and what that had taken of its CPU
  uint8_t call = 0;            // that it is in
  uint32_t left = 0;           // steps of that which are not done
  uint64_t next_rail = 0;
  uint64_t first_step = 0;          // this rank's part of the arrays that go over all ranks' steps, …
  uint64_t first_lane = 0;          // … lanes …
  uint64_t first_notification = 0;  // … and notifications
};

/// A put on its way in several stripes.
struct Flight {
  int left = 0;             // stripes
  double bytes = 0;         // of one
  double last_byte_us = 0;  // so far
};

class Simulator {
 public:
  Simulator(std::span<const Plan> plans, const topology::Layout& layout, const Machine& machine,
            const plan::Limits& limits, const SimulateOptions& options)
      : plans_(plans),
        layout_(layout),
        machine_(machine),
        options_(options),
        per_node_(layout.ranks() / layout.nodes()),
        nodes_(options.one_node ? 1 : layout.nodes()),
        kept_us_(kept_us(machine, layout)),
        network_(machine, nodes_, options.conditions),
        workers_(machine, limits),
        cores_(machine) {}

  Result<Simulation> run() {
    scripts_.reserve(plans_.size());
    for (const Plan& plan : plans_) scripts_.emplace_back(plan, layout_);
    const int ranks = options_.one_node ? per_node_ : layout_.ranks();
    ranks_.reserve(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) add_rank(rank);
    for (RankState& rank : ranks_) {
      if (cores_.shared(rank.worker)) push(0, EventKind::first, rank, 0);
      else begin(rank, 0);
    }
    while (!events_.empty() && error_.ok()) handle(events_.pop());
    if (error_.ok()) error_ = check_ended();
    if (!error_.ok()) return error_;
    return collect();
  }

 private:
  // --- setting up
  void add_rank(int number) {
    const Script& script = scripts_[static_cast<size_t>(number) % scripts_.size()];
    const Plan& plan = *script.plan;
    RankState rank{.script = &script, .plan = &plan, .rank = number};
    rank.node = layout_.node_of(number);
    rank.local = layout_.local_index(number);
    rank.next_rail = static_cast<uint64_t>(rank.local);
    rank.worker = ranks_.size();
    const uint64_t in = plan::input_bytes(plan.request, plan.ranks, plan.rank);
    const uint64_t out = plan::output_bytes(plan.request, plan.ranks, plan.rank);
    const uint64_t working_set = options_.working_set_bytes != 0 ? options_.working_set_bytes
                                 : options_.in_place             ? std::max(in, out)
                                                                 : in + out;
    Turns turns = turns_of(machine_, layout_, rank.node);
    if (turns.across_nodes && (options_.one_node || !options_.turns_across_nodes)) turns = {};
    workers_.add(state_node(rank.node), static_cast<int>(layout_.on_node(rank.node).size()), turns,
                 network_.speed(rank.node), {working_set, plan.scratch_bytes, script.handed_over});
    cores_.add(state_node(rank.node), turns);
    rank.first_step = missing_.size();
    rank.first_lane = lane_at_.size();
    rank.first_notification = waiting_.size();
    lane_at_.resize(lane_at_.size() + static_cast<size_t>(plan.lanes()));
    waiting_.resize(waiting_.size() + plan.notifications());
    if (plan.has_dependents) missing_.resize(missing_.size() + plan.steps.size());
    if (options_.keep_steps) times_.emplace_back(plan.steps.size());
    ranks_.push_back(rank);
    ahead_.emplace_back();
  }

  // --- calls
  /// The rank begins the call that it stands before.
  void begin(RankState& rank, double now) {
    reset(rank);
    const double called = workers_.take_cpu(rank.worker, now, machine_.call_us).end_us;
    std::vector<Event> here;
    if (!ahead_[rank.worker].empty()) here = take_ahead(rank);
    for (int lane = 0; lane < rank.plan->lanes(); ++lane) advance(rank, lane, kNoStep, called);
    for (const Event& message : here) {
      if (message.kind == EventKind::land) file(message, called, EventKind::found);
      else pass_on(message, called, EventKind::found);
    }
  }

  void reset(RankState& rank) {
    const Plan& plan = *rank.plan;
    rank.left = static_cast<uint32_t>(plan.steps.size());
    std::copy(plan.lane_begin.begin(), plan.lane_begin.end() - 1,
              lane_at_.begin() + static_cast<ptrdiff_t>(rank.first_lane));
    const auto waiting = waiting_.begin() + static_cast<ptrdiff_t>(rank.first_notification);
    std::fill(waiting, waiting + plan.notifications(), kNobody);
    if (!plan.has_dependents) return;
    for (StepId id = 0; id < plan.steps.size(); ++id)
      missing_[rank.first_step + id] = plan.steps[id].after_count;
  }

  /// What has come for the call that begins, in the order in which it came.
  std::vector<Event> take_ahead(const RankState& rank) {
    std::vector<Event>& ahead = ahead_[rank.worker];
    const auto later = std::stable_partition(ahead.begin(), ahead.end(),
                                             [&](const Event& e) { return e.call == rank.call; });
    std::vector<Event> taken(ahead.begin(), later);
    ahead.erase(ahead.begin(), later);
    return taken;
  }

  /// A rank that has done the last step of a call goes on to the next one, at this moment, but after what it
  /// is in the midst of.
  void end_call(RankState& rank, double now) {
    if (rank.call + 1 == options_.calls / 2) {
      rank.halfway_us = now;
      rank.halfway_used_us = workers_.used_us(rank.worker);
    }
    if (rank.call + 1 < options_.calls) push(now, EventKind::next, rank, 0);
  }

  void next(RankState& rank, double now) {
    ++rank.call;
    begin(rank, now);
  }

  // --- who is who
  int state_node(int node) const { return options_.one_node ? 0 : node; }
  bool moves() const { return options_.symmetry != Symmetry::none; }
  int moved(int node, int by) const { return moved_node(options_.symmetry, layout_.nodes(), node, by); }
  /// Whom `rank`'s step is for; not simulated itself where one node stands for all.
  int peer_of(const RankState& rank, const Step& step) const {
    if (!moves()) return step.peer;
    return moved(step.peer / per_node_, rank.node) * per_node_ + step.peer % per_node_;
  }
  RankState& state_of(int rank) {
    return ranks_[static_cast<size_t>(options_.one_node ? rank % per_node_ : rank)];
  }
  /// The rank from which, in its script, `peer` gets what `sender` sends it.
  int seen_from(int peer, const RankState& sender) const {
    if (!moves()) return sender.rank;
    const int inverse = inverse_node(options_.symmetry, layout_.nodes(), peer / per_node_);
    return moved(sender.node, inverse) * per_node_ + sender.local;
  }
  bool same_node(const RankState& rank, const Step& step) const {
    return layout_.same_node(rank.plan->rank, step.peer);
  }

  // --- lanes
  uint32_t missing(const RankState& rank, StepId id) const {
    return rank.plan->has_dependents ? missing_[rank.first_step + id] : 0;
  }

  /// Starts what the lane can start at `now`, `cause` having brought it here.
  void advance(RankState& rank, int lane, StepId cause, double now) {
    const Plan& plan = *rank.plan;
    for (uint32_t& at = lane_at_[rank.first_lane + lane]; at < plan.lane_begin[lane + 1]; ++at) {
      const StepId id = plan.lane_steps[at];
      const Step& step = plan.steps[id];
      if (missing(rank, id) > 0) return;  // complete() of the last of them comes back here
      note_ready(rank, id, now, cause);
      if (step.kind != StepKind::wait) return start(rank, id, now);
      uint32_t& waiting = waiting_[rank.first_notification + plan.wait_begin[step.peer] + step.tag];
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
    if (!plan.has_dependents) return;
    for (uint32_t edge = rank.script->begin[id]; edge < rank.script->begin[id + 1]; ++edge) {
      const StepId dependent = rank.script->dependents[edge];
      if (--missing_[rank.first_step + dependent] > 0) continue;
      const int lane = plan.steps[dependent].lane;
      const uint32_t at = lane_at_[rank.first_lane + lane];
      if (at < plan.lane_begin[lane + 1] && plan.lane_steps[at] == dependent) {
        advance(rank, lane, id, now);
      }
    }
  }

  // --- work and messages
  void start(RankState& rank, StepId id, double now) {
    const Step& step = rank.plan->steps[id];
    if (step.kind == StepKind::put || step.kind == StepKind::signal) return send(rank, id, now);
    const Workers::Span span = stays_in_place(rank, step)
                                   ? workers_.take_cpu(rank.worker, now, machine_.step_us)
                                   : workers_.work(rank.worker, *rank.plan, step, now);
    note_start(rank, id, span.start_us);
    push(span.end_us, EventKind::ended, rank, id);
  }

  bool stays_in_place(const RankState& rank, const Step& step) const {
    if (!options_.in_place || step.kind != StepKind::copy || step.dst.space != plan::Space::output)
      return false;
    const plan::Region& source = rank.plan->regions[step.sources];
    return source.rank == rank.plan->rank && source.space == plan::Space::input;
  }

  static double payload(const Step& step) {
    return step.kind == StepKind::put ? static_cast<double>(step.bytes) : 0;
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
    const bool inside = same_node(rank, step);
    const Link& link = inside ? machine_.intra : machine_.inter;
    Traffic& traffic = inside ? intra_ : inter_;
    ++traffic.messages;
    if (step.kind == StepKind::put) traffic.bytes += step.bytes;
    const double moving = workers_.moving_us(rank.worker, step, inside, /*receives=*/false);
    const Workers::Span cpu = workers_.take_cpu(rank.worker, now, handling_us(link, step) + moving);
    note_start(rank, id, cpu.start_us);
    if (inside) {
      double there = cpu.end_us;
      if (!link.by_cpu && step.kind == StepKind::put) {
        const RankState& peer = state_of(peer_of(rank, step));
        there = workers_.move_inside(rank.worker, peer.worker, there, payload(step));
      }
      push(cpu.end_us, EventKind::ended, rank, id, there);
    } else {
      const double handed_over = cpu.start_us + handling_us(link, step) * workers_.slowdown(rank.worker);
      push(handed_over, EventKind::inject, rank, id, cpu.end_us);
    }
  }

  /// One connection's time for a stripe between nodes, when nobody else is there.
  double flow_us(const RankState& rank, double bytes) const {
    return bytes / workers_.flow_rate(rank.worker);
  }

  /// When the source of a stripe may be reused that has left at `gone_us`: then, or once the kernel has taken
  /// it.
  double reusable_us(const Network::Passage& out, double gone_us) const {
    return machine_.inter.by_cpu ? out.end_us - kept_us_ : gone_us;
  }

  void inject(const Event& event) {
    RankState& rank = state_of(event.rank);
    const Step& step = rank.plan->steps[event.step];
    const int peer_node = layout_.node_of(peer_of(rank, step));
    const int from = state_node(rank.node), to = state_node(peer_node);
    const int stripes = network_.stripes(payload(step), from, to);
    const double bytes = payload(step) / stripes;
    uint32_t flight = kNoFlight;
    if (stripes > 1) flight = take_flight({stripes, bytes, 0});
    double released = event.floor_us;
    for (int stripe = 0; stripe < stripes; ++stripe) {
      const int rail = network_.rail(from, to, rank.next_rail++);
      const Network::Passage out = network_.egress(from, rail, peer_node, event.at_us, bytes);
      const double gone = std::max({out.end_us, out.start_us + flow_us(rank, bytes), event.floor_us});
      released = std::max(released, reusable_us(out, gone));
      const bool core = network_.through_core(from, to);
      const double way = core ? 0 : machine_.inter.alpha_us;
      events_.push({out.start_us + way, 0, gone + way, rank.rank, event.step, flight,
                    static_cast<uint16_t>(rail), core ? EventKind::core : EventKind::wire, rank.call},
                   rank.local);
    }
    push(released, EventKind::released, rank, event.step);
    proceed(rank, event.step, event.at_us);
  }

  void core(const Event& event) {
    const RankState& sender = state_of(event.rank);
    const Step& step = sender.plan->steps[event.step];
    const double bytes = event.flight == kNoFlight ? payload(step) : flights_[event.flight].bytes;
    const Network::Passage up = network_.uplink(sender.node, event.at_us, bytes);
    const int to = layout_.node_of(peer_of(sender, step));
    const Network::Passage down = network_.downlink(to, up.start_us, bytes);
    Event next = event;
    next.kind = EventKind::wire;
    next.at_us = down.start_us + machine_.inter.alpha_us;
    next.floor_us = std::max({event.floor_us, up.end_us, down.end_us}) + machine_.inter.alpha_us;
    events_.push(next, sender.local);
  }

  void wire(const Event& event) {
    RankState& sender = state_of(event.rank);
    const Step& step = sender.plan->steps[event.step];
    Flight* const flight = event.flight == kNoFlight ? nullptr : &flights_[event.flight];
    const double bytes = flight == nullptr ? payload(step) : flight->bytes;
    const int peer = peer_of(sender, step), to = state_node(layout_.node_of(peer));
    const int from = layout_.node_of(seen_from(peer, sender));
    const Network::Passage in = network_.ingress(to, event.rail, from, event.at_us, bytes);
    double last_byte = std::max({in.end_us, in.start_us + flow_us(sender, bytes), event.floor_us});
    if (flight != nullptr) {
      last_byte = flight->last_byte_us = std::max(flight->last_byte_us, last_byte);
      if (--flight->left > 0) return;
      free_flights_.push_back(event.flight);
    }
    const bool streams = machine_.inter.by_cpu;  // the receiver's CPU moves bytes while they come in
    pass_on(event, streams ? in.start_us : last_byte, EventKind::land, last_byte);
  }

  /// What is for a later call is read when that begins, or by a rank that has nothing to do but wait.
  void land(const Event& event) {
    const RankState& sender = state_of(event.rank);
    const RankState& receiver = state_of(peer_of(sender, sender.plan->steps[event.step]));
    if (event.call == receiver.call || workers_.idle(receiver.worker, event.at_us))
      return file(event, event.at_us, EventKind::filed);
    ahead_[receiver.worker].push_back(event);
  }

  /// The receiver's CPU takes a message in, from `from_us` on.
  void file(const Event& event, double from_us, EventKind then) {
    const RankState& sender = state_of(event.rank);
    const Step& step = sender.plan->steps[event.step];
    const RankState& receiver = state_of(peer_of(sender, step));
    const bool inside = same_node(sender, step);
    const Link& link = inside ? machine_.intra : machine_.inter;
    const double moving = workers_.moving_us(receiver.worker, step, inside, /*receives=*/true);
    const Workers::Span cpu = workers_.take_cpu(receiver.worker, from_us, handling_us(link, step) + moving);
    if (event.floor_us > cpu.end_us) pass_on(event, event.floor_us, EventKind::came);
    else pass_on(event, cpu.end_us, then);
  }

  void filed(const Event& event) {
    const RankState& sender = state_of(event.rank);
    const Step& step = sender.plan->steps[event.step];
    const int peer = peer_of(sender, step), from = seen_from(peer, sender);
    RankState& receiver = state_of(peer);
    if (event.call != receiver.call) return ahead_[receiver.worker].push_back(event);
    const Plan& plan = *receiver.plan;
    const uint32_t first = plan.wait_begin[from];
    if (step.tag >= plan.wait_begin[from + 1] - first) {
      error_ = fail(Code::internal_error, "plan {} of rank {}: nothing waits for tag {} from rank {}",
                    plan.algorithm, receiver.rank, step.tag, from);
      return;
    }
    uint32_t& waiting = waiting_[receiver.first_notification + first + step.tag];
    const StepId wait = std::exchange(waiting, kArrived);
    if (wait == kNobody || wait == kArrived) return;  // its wait comes later
    note_cause(receiver, wait, event);
    // A rank that waited has given its part of a core away, but not where the message was there first.
    const bool gave_away = workers_.has_part_of_a_core(receiver.worker) && event.kind != EventKind::found;
    const double resumes = event.at_us + (gave_away ? machine_.switch_us : 0);
    if (resumes > event.at_us) return push(resumes, EventKind::resume, receiver, wait);
    resume(receiver, wait, event.at_us);
  }

  void resume(RankState& rank, StepId wait, double now) {
    note_end(rank, wait, now);
    complete(rank, wait, now);
    proceed(rank, wait, now);
  }

  void ended(const Event& event) {
    RankState& rank = state_of(event.rank);
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
    proceed(rank, event.step, event.at_us);
  }

  /// The rank that an event needs: its own, or for a message that has arrived its receiver. Null: none.
  const RankState* rank_of(const Event& event) {
    const RankState& rank = state_of(event.rank);
    switch (event.kind) {
      case EventKind::core:
      case EventKind::wire: return nullptr;
      case EventKind::land:
      case EventKind::filed:
      case EventKind::came:
      case EventKind::found: return &state_of(peer_of(rank, rank.plan->steps[event.step]));
      default: return &rank;
    }
  }
  /// Whether an event comes of what its rank does on its core, which it keeps until then.
  static bool is_expected(EventKind kind) {
    switch (kind) {
      case EventKind::ended:
      case EventKind::inject:
      case EventKind::filed:
      case EventKind::found:
      case EventKind::next:
      case EventKind::turn: return true;
      default: return false;
    }
  }

  void handle(const Event& event) {
    const RankState* const rank = cores_.cores() > 0 ? rank_of(event) : nullptr;
    if (rank == nullptr || !cores_.shared(rank->worker)) return happen(event);
    if (event.kind == EventKind::turn) {
      for (Event& kept : cores_.begin(rank->worker)) {
        kept.at_us = event.at_us;
        happen(kept);
      }
    } else if (!cores_.runs(rank->worker)) {
      return take_turn(cores_.keep(rank->worker, event));
    } else {
      happen(event);
    }
    if (is_expected(event.kind)) cores_.happened(rank->worker);
    take_turn(cores_.done(rank->worker, std::max(event.at_us, workers_.free_us(rank->worker))));
  }

  void take_turn(const Cores::Turn& turn) {
    if (turn.rank != Cores::kNone) push(turn.at_us, EventKind::turn, ranks_[turn.rank], 0);
  }

  void happen(const Event& event) {
    switch (event.kind) {
      case EventKind::ended: return ended(event);
      case EventKind::released:
        note_end(state_of(event.rank), event.step, event.at_us);
        return complete(state_of(event.rank), event.step, event.at_us);
      case EventKind::inject: return inject(event);
      case EventKind::core: return core(event);
      case EventKind::wire: return wire(event);
      case EventKind::land: return land(event);
      case EventKind::filed:
      case EventKind::came:
      case EventKind::found: return filed(event);
      case EventKind::resume: return resume(state_of(event.rank), event.step, event.at_us);
      case EventKind::next: return next(state_of(event.rank), event.at_us);
      case EventKind::first: return begin(state_of(event.rank), event.at_us);
      case EventKind::turn: return;
    }
  }

  // --- bookkeeping
  void push(double at_us, EventKind kind, const RankState& rank, StepId step, double floor_us = 0) {
    push({at_us, 0, floor_us, rank.rank, step, kNoFlight, 0, kind, rank.call}, rank);
  }
  /// The same message, further on: its sender may be in another call by then.
  void pass_on(const Event& message, double at_us, EventKind kind, double floor_us = 0) {
    push({at_us, 0, floor_us, message.rank, message.step, kNoFlight, 0, kind, message.call},
         state_of(message.rank));
  }
  void push(const Event& event, const RankState& of) {
    if (cores_.cores() > 0 && is_expected(event.kind)) {
      const size_t worker = rank_of(event)->worker;
      if (cores_.shared(worker)) cores_.expect(worker);
    }
    events_.push(event, of.local);
  }

  uint32_t take_flight(const Flight& flight) {
    if (free_flights_.empty()) {
      flights_.push_back(flight);
      return static_cast<uint32_t>(flights_.size() - 1);
    }
    const uint32_t number = free_flights_.back();
    free_flights_.pop_back();
    flights_[number] = flight;
    return number;
  }

  StepTimes* times_of(const RankState& rank, StepId id) {
    return options_.keep_steps ? &times_[rank.worker][id] : nullptr;
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
    if (--rank.left == 0) end_call(rank, now);
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
                    step.kind == StepKind::wait && missing(rank, id) == 0
                        ? fmt::format("waiting for tag {} from rank {}", step.tag, peer_of(rank, step))
                        : fmt::format("which {} steps keep from starting", missing(rank, id)));
      }
    }
    return {};
  }

  Simulation collect() {
    Simulation result;
    result.intra = intra_;
    result.inter = inter_;
    if (options_.one_node) {
      for (Traffic* traffic : {&result.intra, &result.inter}) {
        traffic->messages *= static_cast<uint64_t>(layout_.nodes());
        traffic->bytes *= static_cast<uint64_t>(layout_.nodes());
      }
    }
    for (const RankState& rank : ranks_) {
      result.finish_us.push_back(rank.finish_us);
      result.total_us = std::max(result.total_us, rank.finish_us);
      const double half_us = rank.finish_us - rank.halfway_us;
      result.call_us = std::max(result.call_us, half_us / (options_.calls - options_.calls / 2));
    }
    // In a long row a rank that is done waits for those of its core that are not.
    std::vector<double> core_us(cores_.cores(), 0);
    for (const RankState& rank : ranks_) {
      if (!cores_.shared(rank.worker)) continue;
      double& used_us = core_us[cores_.core_of(rank.worker)];
      used_us += workers_.used_us(rank.worker) - rank.halfway_used_us;
      result.call_us = std::max(result.call_us, used_us / (options_.calls - options_.calls / 2));
    }
    result.longest_wait_us = network_.longest_wait_us();
    result.events = events_.handled();
    result.steps = std::move(times_);
    if (options_.keep_steps) result.critical = find_critical_path(plans_, layout_, result.steps);
    return result;
  }

  const std::span<const Plan> plans_;
  const topology::Layout& layout_;
  const Machine& machine_;
  const SimulateOptions& options_;
  const int per_node_, nodes_;  // nodes that are simulated
  const double kept_us_;        // of a line's time, for what it sends, the kernel keeps bytes

  Network network_;
  Workers workers_;
  Cores cores_;
  EventQueue events_;
  std::vector<Script> scripts_;
  std::vector<RankState> ranks_;
  std::vector<uint32_t> lane_at_;  // position in Plan::lane_steps
  std::vector<uint32_t> missing_;  // unfinished steps that a step names in `after`
  std::vector<uint32_t> waiting_;  // of a notification: the wait step that is there, kArrived or kNobody
  std::vector<std::vector<Event>> ahead_;  // by rank: messages for later calls, landed or filed
  std::vector<Flight> flights_;
  std::vector<uint32_t> free_flights_;
  std::vector<std::vector<StepTimes>> times_;
  Traffic intra_, inter_;
  Status error_;
};

Status check(std::span<const Plan> plans, const topology::Layout& layout, const SimulateOptions& options) {
  if (options.calls < 1 || options.calls > kMostCalls) {
    return fail(Code::invalid_argument, "simulate: {} calls, must be in [1, {}]", options.calls, kMostCalls);
  }
  if (options.calls > 1 && options.keep_steps)
    return fail(Code::invalid_argument, "simulate: steps are kept of one call alone, not of {} in a row",
                options.calls);
  if (options.in_place && !plans.empty() && plans.front().request.collective == plan::Collective::all_to_all)
    return fail(Code::invalid_argument, "simulate: an AlltoAll's plan says itself whether it is in place");
  const bool all = options.symmetry == Symmetry::none;
  if (!all && !in_blocks(layout)) {
    return fail(Code::invalid_argument, "simulate: symmetry needs ranks in equal blocks, not {}",
                layout.to_string());
  }
  if (options.one_node && (all || !options.conditions.all_nodes_alike())) {
    return fail(Code::invalid_argument, "simulate: one node stands for all only where all nodes are alike");
  }
  const int wanted = all ? layout.ranks() : layout.ranks() / layout.nodes();
  if (static_cast<int>(plans.size()) != wanted) {
    return fail(Code::invalid_argument, "simulate: {} plans for {} ranks", plans.size(), wanted);
  }
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    if (plans[rank].rank == static_cast<int>(rank) && plans[rank].ranks == layout.ranks()) continue;
    return fail(Code::invalid_argument, "simulate: plan {} is rank {}'s of {}, must be rank {}'s of {}", rank,
                plans[rank].rank, plans[rank].ranks, rank, layout.ranks());
  }
  return {};
}

}  // namespace

int row_calls(const plan::Request& request, const topology::Layout& layout, const Machine& machine,
              const plan::Limits& limits) {
  // A FIFO's slots, and the bytes that it has beside them (transport/shm_fifo.h).
  constexpr uint64_t kSlots = 64;
  const uint64_t ring_bytes = 4 * limits.eager_bytes(/*same_node=*/true);
  const bool turns = layout.nodes() == 1 && turns_of(machine, layout, 0).cores > 0;
  if (!turns || !plan::has_root(request.collective)) return kRowCalls;
  const uint64_t room = ring_bytes / std::max<uint64_t>(request.bytes(), 1);
  return static_cast<int>(std::clamp<uint64_t>(room, kRowCalls, kSlots));
}

Result<Simulation> simulate(std::span<const Plan> plans, const topology::Layout& layout,
                            const Machine& machine, const plan::Limits& limits,
                            const SimulateOptions& options) {
  WEFT_TRY(check(plans, layout, options));
  return Simulator(plans, layout, machine, limits, options).run();
}

}  // namespace weft::model
