// The event loop of the simulator. Ranks begin calls, lanes go from step to step, copies and reductions take
// workers, messages take their path (model/messages.h), and an arrival lets the lane of a wait go on.
//
// A rank has the state of one call of a streak. Messages for a later call are kept until it begins
// (RankState::ahead), as the engine's stash and the transports' buffers keep them.
//
// Invariants: events are handled in the order of event_queue.h. A resource is reserved in the order in which
// its users ask for it. An event touches one rank and its node, and reaches other nodes by events only. So
// symmetry is exact.
#include "model/simulate.h"

#include <algorithm>
#include <utility>

#include "model/agenda.h"
#include "model/critical_path.h"
#include "model/messages.h"
#include "model/network.h"
#include "model/ranks.h"
#include "model/step_record.h"
#include "model/workers.h"
#include "transport/shm_room.h"

namespace weft::model {
namespace {

using plan::Plan;
using plan::Step;
using plan::StepId;
using plan::StepKind;

/// A long streak in which nobody waits for all: what interfaces have saved up is soon used.
bool is_stream(std::span<const Plan> plans, const SimulateOptions& options) {
  return options.calls > 1 && !plans.empty() && plan::has_root(plans.front().request.collective);
}

class Simulator {
 public:
  Simulator(std::span<const Plan> plans, const topology::Layout& layout, const Machine& machine,
            const plan::Limits& limits, const SimulateOptions& options)
      : plans_(plans),
        layout_(layout),
        machine_(machine),
        options_(options),
        ranks_(plans, layout, options.symmetry, options.one_node),
        network_(machine, ranks_.nodes(), options.conditions, !is_stream(plans, options)),
        workers_(machine, limits),
        agenda_(machine, ranks_, workers_),
        messages_(machine, layout, limits, ranks_, network_, workers_, agenda_, is_stream(plans, options)),
        record_(options.keep_steps, ranks_) {
    for (const RankState& rank : ranks_.all()) equip(rank);
  }

  Result<Simulation> run() {
    for (RankState& rank : ranks_.all()) {
      if (agenda_.cores().shared(rank.worker)) agenda_.push(0, EventKind::first, rank, 0);
      else begin(rank, 0);
    }
    while (!agenda_.empty() && error_.ok()) {
      agenda_.next([this](const Event& event) { happen(event); });
    }
    if (error_.ok()) error_ = check_ended();
    if (!error_.ok()) return error_;
    return collect();
  }

 private:
  /// Gives a rank what it works with.
  void equip(const RankState& rank) {
    const Plan& plan = rank.plan();
    const uint64_t in = plan::input_bytes(plan.request, plan.ranks, plan.rank);
    const uint64_t out = plan::output_bytes(plan.request, plan.ranks, plan.rank);
    const uint64_t working_set = options_.working_set_bytes != 0 ? options_.working_set_bytes
                                 : options_.in_place             ? std::max(in, out)
                                                                 : in + out;
    Turns turns = turns_of(machine_, layout_, rank.node);
    if (turns.across_nodes && options_.one_node) turns = {};
    const int node = ranks_.simulated_node(rank.node);
    workers_.add(node, static_cast<int>(layout_.on_node(rank.node).size()), turns, network_.speed(rank.node),
                 {working_set, plan.scratch_bytes, rank.lanes.script().handed_over});
    agenda_.add(turns.cores > 0 ? core_of(machine_, layout_, rank.rank) : -1);
  }

  void happen(const Event& event) {
    switch (event.kind) {
      case EventKind::ended: return ended(event);
      case EventKind::released:
      case EventKind::taken: return finish(ranks_.of(event), event.step, event.at_us);
      case EventKind::inject:
        messages_.inject(event);
        return proceed(ranks_.of(event), event.step, event.at_us);
      case EventKind::write: return messages_.write(event);
      case EventKind::core: return messages_.core(event);
      case EventKind::wire: return messages_.wire(event);
      case EventKind::land: return land(event);
      case EventKind::filed:
      case EventKind::came:
      case EventKind::found: return filed(event);
      case EventKind::resume: return resume(ranks_.of(event), event.step, event.at_us);
      case EventKind::next: return next(ranks_.of(event), event.at_us);
      case EventKind::first: return begin(ranks_.of(event), event.at_us);
      case EventKind::turn: return;
    }
  }

  // --- calls
  /// The rank begins the call that it stands before.
  void begin(RankState& rank, double now) {
    rank.left = static_cast<uint32_t>(rank.plan().steps.size());
    rank.lanes.restart();
    const double called = workers_.take_cpu(rank.worker, now + workers_.stream_us(), machine_.call_us).end_us;
    std::vector<Event> here;
    if (!rank.ahead.empty()) here = take_ahead(rank);
    for (int lane = 0; lane < rank.plan().lanes(); ++lane) advance(rank, lane, kNoStep, called);
    for (const Event& message : here) {
      if (message.kind == EventKind::land) messages_.file(message, called, EventKind::found);
      else agenda_.pass_on(message, called, EventKind::found);
    }
  }

  /// The messages that have arrived for the call that begins, in order.
  static std::vector<Event> take_ahead(RankState& rank) {
    const auto later = std::stable_partition(rank.ahead.begin(), rank.ahead.end(),
                                             [&](const Event& e) { return e.call == rank.call; });
    std::vector<Event> taken(rank.ahead.begin(), later);
    rank.ahead.erase(rank.ahead.begin(), later);
    return taken;
  }

  /// A rank that has done the last step of a call goes on to the next one, at this moment, but after what it
  /// is in the midst of.
  void end_call(RankState& rank, double now) {
    if (rank.call + 1 == options_.calls / 2) {
      rank.halfway_us = now;
      rank.halfway_used_us = workers_.used_us(rank.worker);
    }
    if (rank.call + 1 < options_.calls) agenda_.push(now, EventKind::next, rank, 0);
  }

  void next(RankState& rank, double now) {
    ++rank.call;
    begin(rank, now);
  }

  // --- steps
  /// Starts what the lane can start at `now`, `cause` having brought it here.
  void advance(RankState& rank, int lane, StepId cause, double now) {
    for (StepId id; (id = rank.lanes.head(lane)) != kNoStep; rank.lanes.pass(lane)) {
      if (rank.lanes.missing(id) > 0) return;  // finish() of the last of them comes back here
      record_.ready(rank, id, now, cause);
      if (rank.step(id).kind != StepKind::wait) return start(rank, id, now);
      if (!rank.lanes.await(id)) return;  // filed() comes back here
      finish(rank, id, now);
      cause = id;
    }
  }

  /// The head of its lane, `id`, lets the lane go on.
  void proceed(RankState& rank, StepId id, double now) {
    const int lane = rank.step(id).lane;
    rank.lanes.pass(lane);
    advance(rank, lane, id, now);
  }

  /// `id` is done. A step that names it in `after` starts if it is the head of its lane and misses nothing
  /// else. Called before the lane of `id` passes it.
  void finish(RankState& rank, StepId id, double now) {
    rank.finish_us = std::max(rank.finish_us, now);
    record_.end(rank, id, now);
    if (--rank.left == 0) end_call(rank, now);
    rank.lanes.finish(id, [&](int lane) { advance(rank, lane, id, now); });
  }

  void start(RankState& rank, StepId id, double now) {
    const Step& step = rank.step(id);
    if (!plan::sends(step.kind)) return work(rank, id, now);
    if (step.peer >= 0 && step.peer < layout_.ranks()) {
      record_.start(rank, id, messages_.send(rank, id, now));
    } else {
      error_ = fail(Code::internal_error, "plan {} of rank {}: step {} sends to rank {} of {}",
                    rank.plan().algorithm, rank.rank, id, step.peer, layout_.ranks());
    }
  }

  /// A copy or a reduction.
  void work(RankState& rank, StepId id, double now) {
    const Step& step = rank.step(id);
    const Workers::Span span = stays_in_place(rank, step)
                                   ? workers_.take_cpu(rank.worker, now, machine_.step_us)
                                   : workers_.work(rank.worker, rank.plan(), step, now);
    record_.start(rank, id, span.start_us);
    agenda_.push(span.end_us, EventKind::ended, rank, id);
  }

  bool stays_in_place(const RankState& rank, const Step& step) const {
    if (!options_.in_place || step.kind != StepKind::copy || step.dst.space != plan::Space::output)
      return false;
    const plan::Region& source = rank.plan().regions[step.sources];
    return source.rank == rank.plan().rank && source.space == plan::Space::input;
  }

  void ended(const Event& event) {
    RankState& rank = ranks_.of(event);
    if (plan::sends(rank.step(event.step).kind)) messages_.leave(event);
    if (event.floor_us <= event.at_us) finish(rank, event.step, event.at_us);
    proceed(rank, event.step, event.at_us);
  }

  // --- what has arrived
  /// A message for a later call is read when that begins, or by a rank that only waits.
  void land(const Event& event) {
    const RankState& sender = ranks_.of(event);
    RankState& receiver = ranks_.receiver_of(sender, sender.step(event.step));
    if (event.call == receiver.call || workers_.idle(receiver.worker, event.at_us))
      return messages_.file(event, event.at_us, EventKind::filed);
    receiver.ahead.push_back(event);
  }

  void filed(const Event& event) {
    const RankState& sender = ranks_.of(event);
    const Step& step = sender.step(event.step);
    const int peer = ranks_.peer_of(sender, step), from = ranks_.seen_from(peer, sender);
    RankState& receiver = ranks_.state_of(peer);
    if (event.call != receiver.call) return receiver.ahead.push_back(event);
    if (!receiver.lanes.expects(from, step.tag)) {
      error_ = fail(Code::internal_error, "plan {} of rank {}: nothing waits for tag {} from rank {}",
                    receiver.plan().algorithm, receiver.rank, step.tag, from);
      return;
    }
    const StepId wait = receiver.lanes.arrive(from, step.tag);
    if (wait == kNoStep) return;  // its lane comes there later
    record_.cause(receiver, wait, event);
    // A rank that waited has given its part of a core away, but not where the message was there first.
    const bool gave_away = workers_.has_part_of_a_core(receiver.worker) && event.kind != EventKind::found;
    const double resumes = event.at_us + (gave_away ? machine_.switch_us : 0);
    if (resumes > event.at_us) return agenda_.push(resumes, EventKind::resume, receiver, wait);
    resume(receiver, wait, event.at_us);
  }

  void resume(RankState& rank, StepId wait, double now) {
    finish(rank, wait, now);
    proceed(rank, wait, now);
  }

  // --- results
  Status check_ended() const {
    for (const RankState& rank : ranks_.all()) {
      for (int lane = 0; lane < rank.plan().lanes(); ++lane) {
        const StepId id = rank.lanes.head(lane);
        if (id == kNoStep) continue;
        const Step& step = rank.step(id);
        const uint32_t missing = rank.lanes.missing(id);
        return fail(Code::internal_error, "plan {} does not end: rank {} is stuck in lane {} at step {}, {}",
                    rank.plan().algorithm, rank.rank, lane, id,
                    step.kind == StepKind::wait && missing == 0
                        ? fmt::format("waiting for tag {} from rank {}", step.tag, ranks_.peer_of(rank, step))
                        : fmt::format("which {} steps keep from starting", missing));
      }
    }
    return {};
  }

  Simulation collect() {
    Simulation result;
    result.intra = messages_.traffic(/*same_node=*/true);
    result.inter = messages_.traffic(/*same_node=*/false);
    if (options_.one_node) {
      for (Traffic* traffic : {&result.intra, &result.inter}) {
        traffic->messages *= static_cast<uint64_t>(layout_.nodes());
        traffic->bytes *= static_cast<uint64_t>(layout_.nodes());
      }
    }
    for (const RankState& rank : ranks_.all()) {
      result.finish_us.push_back(rank.finish_us);
      result.total_us = std::max(result.total_us, rank.finish_us);
      const double half_us = rank.finish_us - rank.halfway_us;
      result.call_us = std::max(result.call_us, half_us / (options_.calls - options_.calls / 2));
    }
    // In a long streak a rank that is done waits for those of its core that are not.
    const Cores& cores = agenda_.cores();
    std::vector<double> core_us(cores.cores(), 0);
    for (const RankState& rank : ranks_.all()) {
      if (!cores.shared(rank.worker)) continue;
      double& used_us = core_us[cores.core_of(rank.worker)];
      used_us += workers_.used_us(rank.worker) - rank.halfway_used_us;
      result.call_us = std::max(result.call_us, used_us / (options_.calls - options_.calls / 2));
    }
    result.longest_wait_us = network_.longest_wait_us();
    result.events = agenda_.handled();
    result.steps = record_.take();
    if (options_.keep_steps) result.critical = find_critical_path(plans_, layout_, result.steps);
    return result;
  }

  const std::span<const Plan> plans_;
  const topology::Layout& layout_;
  const Machine& machine_;
  const SimulateOptions& options_;

  Ranks ranks_;
  Network network_;
  Workers workers_;
  Agenda agenda_;
  Messages messages_;
  StepRecord record_;
  Status error_;
};

Status check(std::span<const Plan> plans, const topology::Layout& layout, const SimulateOptions& options) {
  if (options.calls < 1 || options.calls > kMostCalls) {
    return fail(Code::invalid_argument, "simulate: {} calls, must be in [1, {}]", options.calls, kMostCalls);
  }
  if (options.calls > 1 && options.keep_steps)
    return fail(Code::invalid_argument, "simulate: steps are kept of one call alone, not of a streak of {}",
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

int streak_calls(const plan::Request& request, const topology::Layout& layout, const Machine& machine,
                 const plan::Limits& limits) {
  const bool turns = turns_of(machine, layout, 0).cores > 0;
  const bool gathers = layout.nodes() > 1 && machine.inter.gathered_us > 0;
  if (!(turns || gathers) || !plan::has_root(request.collective)) return kStreakCalls;
  const uint64_t ring_bytes = transport::shm::ring_bytes_for(limits.eager_bytes(/*same_node=*/true));
  const uint64_t room = ring_bytes / std::max<uint64_t>(request.bytes(), 1);
  return static_cast<int>(std::clamp<uint64_t>(room, kStreakCalls, transport::shm::kSlots));
}

Result<Simulation> simulate(std::span<const Plan> plans, const topology::Layout& layout,
                            const Machine& machine, const plan::Limits& limits,
                            const SimulateOptions& options) {
  WEFT_TRY(check(plans, layout, options));
  return Simulator(plans, layout, machine, limits, options).run();
}

}  // namespace weft::model
