#include "model/estimate.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace weft::model {
namespace {

using plan::Collective;
using plan::Request;
using topology::Layout;

/// Steps to simulate at most, over all ranks, for one point of a line. A step takes 0.1 to 0.2 µs to plan and
/// simulate, and a choice needs some twenty points.
constexpr uint64_t budget(uint64_t ranks) { return std::min<uint64_t>(700 + 64 * ranks, 9000); }

/// Calls in which all ranks wait for all show the cost of turns in a shorter streak.
constexpr int kShortestStreak = 4;

/// A communicator to simulate, and what to ask of it.
struct Stage {
  Layout layout;
  Machine machine;
  Request request;

  uint64_t ranks() const { return static_cast<uint64_t>(layout.ranks()); }
  /// The rank whose number of steps tells how large the plan is: where data is cut into blocks, rank 0 has
  /// the largest.
  int typical_rank() const { return plan::has_root(request.collective) ? request.root : 0; }
};

int largest_node(const Layout& layout) {
  int largest = 0;
  for (int node = 1; node < layout.nodes(); ++node)
    if (layout.on_node(node).size() > layout.on_node(largest).size()) largest = node;
  return largest;
}

int most_of_a_node(const Layout& layout) {
  return static_cast<int>(layout.on_node(largest_node(layout)).size());
}

Turns turns_in(const Stage& stage) {
  return turns_of(stage.machine, stage.layout, largest_node(stage.layout));
}

struct Question {
  const plan::Algorithm& algorithm;
  plan::Limits limits;
  uint64_t working_set_bytes;
  Calls calls;
  bool in_place;
  bool one_for_all = true;  // one node may stand for all

  /// The number of calls to simulate. Without a root every rank waits for all, and one call is enough, unless
  /// ranks take turns on cores. The rank that has a core at the end of a call begins the next one on it. Then
  /// several calls are simulated if that can be afforded.
  int calls_in_streak(const Stage& stage) const {
    if (calls == Calls::alone) return 1;
    const bool rooted = plan::has_root(stage.request.collective);
    if (!rooted && turns_in(stage).cores == 0) return 1;
    const uint64_t steps = typical_steps(stage) * stage.ranks(), most = budget(stage.ranks());
    int streak = streak_calls(stage.request, stage.layout, stage.machine, limits);
    const int shortest = rooted ? kStreakCalls : kShortestStreak;
    while (streak > shortest && steps * static_cast<uint64_t>(streak) > most)
      streak = std::max(streak / 2, shortest);
    return rooted || steps * static_cast<uint64_t>(streak) <= most ? streak : 1;
  }
  plan::Plan plan(const Stage& stage, int rank) const {
    return algorithm.make(stage.request, stage.layout, limits, rank);
  }
  plan::Plan typical_plan(const Stage& stage) const { return plan(stage, stage.typical_rank()); }
  uint64_t typical_steps(const Stage& stage) const { return typical_plan(stage).steps.size(); }
  /// The symmetry by which one node may stand for all (model/symmetry.h), from the plans of `locals` ranks of
  /// three nodes. If blocks were not alike, the last node's would differ.
  Symmetry symmetry(const Stage& stage, int locals) const {
    const int nodes = stage.layout.nodes();
    if (!one_for_all || nodes < 4 || plan::has_root(stage.request.collective) || !in_blocks(stage.layout))
      return Symmetry::none;
    bool rotation = true, exchange = std::has_single_bit(static_cast<unsigned>(nodes));
    for (int rank = 0; rank < locals && (rotation || exchange); ++rank) {
      const plan::Plan original = plan(stage, rank);
      for (const int node : {1, nodes - 1}) {
        const plan::Plan other = plan(stage, rank + node * (stage.layout.ranks() / nodes));
        rotation = rotation && is_moved(original, other, Symmetry::rotation, stage.layout, node);
        exchange = exchange && is_moved(original, other, Symmetry::exchange, stage.layout, node);
      }
    }
    if (rotation) return Symmetry::rotation;
    return exchange ? Symmetry::exchange : Symmetry::none;
  }
  uint64_t steps_of_all(const Stage& stage) const {
    return typical_steps(stage) * static_cast<uint64_t>(calls_in_streak(stage)) * stage.ranks();
  }
  /// The number of steps that simulating it takes.
  uint64_t steps_to_simulate(const Stage& stage) const {
    const uint64_t steps = steps_of_all(stage);
    if (steps <= budget(stage.ranks()) || symmetry(stage, 1) == Symmetry::none) return steps;
    return steps / static_cast<uint64_t>(stage.layout.nodes());
  }
  /// How long the thread of a rank is busy with engines, for all of its ranks. With a root they differ: 0.
  double thread_us(const Stage& stage) const {
    if (stage.machine.engine_step_us <= 0 || plan::has_root(stage.request.collective)) return 0;
    double steps = 0;
    for (const plan::Step& step : typical_plan(stage).steps)
      steps += step.kind != plan::StepKind::wait && step.kind != plan::StepKind::signal;
    return steps * stage.machine.engine_step_us *
           std::min(stage.machine.thread_ranks, most_of_a_node(stage.layout));
  }
  /// The same with slices of `slice_bytes`.
  Question with_slices(uint64_t slice_bytes) const {
    Question other = *this;
    other.limits.slice_bytes = slice_bytes;
    return other;
  }
};

uint64_t working_set(const Request& request, int ranks, bool in_place) {
  uint64_t most = 0;
  for (const int rank : {0, ranks - 1, std::clamp(request.root, 0, ranks - 1)}) {
    const uint64_t in = plan::input_bytes(request, ranks, rank);
    const uint64_t out = plan::output_bytes(request, ranks, rank);
    most = std::max(most, in_place ? std::max(in, out) : in + out);
  }
  return most;
}

/// The ranks of the first `nodes` nodes with a local index below `per_node`. A node's ranks have the cores of
/// as many.
Stage part_of(const Stage& stage, int nodes, int per_node) {
  std::vector<int> node_of;
  int root = 0;
  for (int rank = 0; rank < stage.layout.ranks(); ++rank) {
    if (stage.layout.node_of(rank) >= nodes || stage.layout.local_index(rank) >= per_node) continue;
    if (rank == stage.request.root) root = static_cast<int>(node_of.size());
    node_of.push_back(stage.layout.node_of(rank));
  }
  Stage part{Layout(node_of), stage.machine, stage.request};
  part.request.root = root;
  part.machine.cores *= static_cast<double>(per_node) / most_of_a_node(stage.layout);
  return part;
}

/// Half the nodes while two are left, else half of every node, unless its ranks take turns on an odd number
/// of cores. A half of a power of two is one, and a half of another number is mostly none: some algorithms
/// differ between them (plan/fold.h).
std::optional<Stage> halve(const Stage& stage, int fewest_nodes) {
  const int nodes = stage.layout.nodes(), per_node = most_of_a_node(stage.layout);
  const auto is_power = [](int n) { return std::has_single_bit(static_cast<unsigned>(n)); };
  int half = nodes / 2;
  if (!is_power(nodes) && is_power(half) && !is_power(half + 1)) ++half;
  if (half >= fewest_nodes) return part_of(stage, half, per_node);
  const bool splits_core = turns_in(stage).cores % 2 != 0;
  if (per_node >= 4 && !splits_core) return part_of(stage, nodes, per_node / 2);
  return std::nullopt;
}

double bytes_per_put(const plan::Plan& plan) {
  double bytes = 0, puts = 0;
  for (const plan::Step& step : plan.steps) {
    if (step.kind == plan::StepKind::put) bytes += static_cast<double>(step.bytes), puts += 1;
  }
  return puts > 0 ? bytes / puts : 0;
}

/// Makes the smaller communicator's messages as long as the larger one's. An all-reduce that cuts its data
/// into a block for each rank gets fewer blocks. An algorithm that sends everything to all ranks gets the
/// same data. `unsliced` has slices that cut nothing.
void match_messages(const Question& unsliced, const Stage& larger, Stage& smaller) {
  const double wanted = bytes_per_put(unsliced.typical_plan(larger));
  const double has = bytes_per_put(unsliced.typical_plan(smaller));
  if (wanted <= 0 || has <= 0) return;
  const double count = static_cast<double>(smaller.request.count) * (wanted / has);
  smaller.request.count = std::max<uint64_t>(static_cast<uint64_t>(count + 0.5), 1);
}

/// `floor_us`, if it is asked for: no plan with this traffic takes less, since the nodes' interfaces do not.
Result<double> run(const Question& question, const Stage& stage, double* floor_us = nullptr) {
  SimulateOptions options;
  options.working_set_bytes = question.working_set_bytes;
  options.calls = question.calls_in_streak(stage);
  options.in_place = question.in_place;
  const int per_node = stage.layout.ranks() / stage.layout.nodes();
  options.symmetry = question.symmetry(stage, per_node);
  options.one_node = options.symmetry != Symmetry::none;
  const int planned = options.one_node ? per_node : stage.layout.ranks();
  std::vector<plan::Plan> plans;
  plans.reserve(static_cast<size_t>(planned));
  for (int rank = 0; rank < planned; ++rank) plans.push_back(question.plan(stage, rank));
  const Result<Simulation> simulation =
      simulate(plans, stage.layout, stage.machine, question.limits, options);
  if (!simulation.ok()) return simulation.status();
  if (floor_us != nullptr && simulation->inter.bytes > 0) {
    const double each = static_cast<double>(simulation->inter.bytes) / options.calls / stage.layout.nodes();
    *floor_us = stage.machine.inter.alpha_us + each / stage.machine.node_bytes_per_us();
  }
  return simulation->call_us;
}

/// The communicators to simulate: the communicator itself, or two parts of it.
struct Stages {
  Stage whole;
  std::optional<Stage> far, near;
};

Stages choose_stages(const Question& question, const Question& unsliced, Stage whole) {
  const uint64_t most = budget(whole.ranks());
  Stages stages{std::move(whole), {}, {}};
  if (question.steps_to_simulate(stages.whole) <= most) return stages;
  // Two parts that differ in their nodes show what a node more costs: four and two are the least.
  std::optional<Stage> far = halve(stages.whole, 4);
  while (far) {
    match_messages(unsliced, stages.whole, *far);
    if (question.steps_to_simulate(*far) <= most) break;
    std::optional<Stage> half = halve(*far, 4);
    if (!half || !halve(*half, 2)) break;
    far = std::move(half);
  }
  std::optional<Stage> near = far ? halve(*far, 2) : std::nullopt;
  if (!near) return stages;
  match_messages(unsliced, stages.whole, *near);
  stages.far = std::move(far);
  stages.near = std::move(near);
  return stages;
}

Result<double> run(const Question& question, const Stages& stages, double* floor_us = nullptr) {
  if (!stages.far) return run(question, stages.whole, floor_us);
  const Result<double> far_us = run(question, *stages.far), near_us = run(question, *stages.near);
  if (!far_us.ok()) return far_us.status();
  if (!near_us.ok()) return near_us.status();
  const auto steps = [&](const Stage& stage) { return static_cast<double>(question.typical_steps(stage)); };
  double whole = steps(stages.whole), far = steps(*stages.far), near = steps(*stages.near);
  if (far <= near) {  // in a chain every rank does the same, however long the chain is
    whole = static_cast<double>(stages.whole.ranks());
    far = static_cast<double>(stages.far->ranks());
    near = static_cast<double>(stages.near->ranks());
  }
  const double slope = std::max(*far_us - *near_us, 0.0) / (far - near);
  return *far_us + std::max(whole - far, 0.0) * slope;
}

/// The shortest slices, from `usual` upwards in powers of two, that can be afforded or cut transfers into at
/// most about four. Slices of twice the length must still be slices, since uncut data does not lie on the
/// line.
uint64_t affordable_slice(const Question& unsliced, const Stage& whole, uint64_t usual) {
  const uint64_t fewest = unsliced.typical_steps(whole);
  uint64_t slice = unsliced.limits.slice_bytes;
  while (slice > usual) {
    const Question finer = unsliced.with_slices(slice / 2);
    if (finer.typical_steps(whole) > 4 * fewest && finer.steps_to_simulate(whole) > budget(whole.ranks()))
      break;
    slice /= 2;
  }
  return slice;
}

}  // namespace

const char* method_of(const Estimate& estimate) {
  if (!estimate.simulated) return "alpha + bytes / rate";
  if (estimate.fewer_slices && estimate.fewer_ranks) return "simulated with fewer slices and ranks";
  if (estimate.fewer_slices) return "simulated with fewer slices";
  return estimate.fewer_ranks ? "simulated with fewer ranks" : "simulated";
}

Result<Estimate> estimate(const plan::Algorithm& algorithm, const Request& request, const Layout& layout,
                          const Machine& machine, const plan::Limits& limits, Calls calls,
                          std::optional<bool> asked_in_place) {
  if (plan::is_transfer(request.collective)) {
    // The other end's plan is of another request, and who this end is has not been said.
    const Link& link = layout.nodes() > 1 ? machine.inter : machine.intra;
    const double us = way_us(link) + static_cast<double>(request.bytes()) / link.bytes_per_us;
    return Estimate{us, false, false, false};
  }
  const Stage whole{layout, machine, request};
  const bool in_place = asked_in_place.value_or(mostly_in_place(request.collective));
  Question question{algorithm, limits, working_set(request, layout.ranks(), in_place), calls, in_place};
  // If nodes share cores, the order of turns matters for short operations. Long ones take too long to
  // simulate with turns.
  question.one_for_all =
      !turns_in(whole).across_nodes || question.steps_of_all(whole) > budget(whole.ranks());
  uint64_t longest = std::max<uint64_t>(limits.slice_bytes, 1);
  while (longest < question.working_set_bytes) longest *= 2;
  const Question unsliced = question.with_slices(longest);
  const uint64_t slice = affordable_slice(unsliced, whole, limits.slice_bytes);
  const Stages stages = choose_stages(question.with_slices(slice), unsliced, whole);
  Estimate result;
  result.fewer_ranks = stages.far.has_value();
  result.fewer_slices = slice > limits.slice_bytes;
  double floor_us = 0;
  const Result<double> us = run(question.with_slices(slice), stages, &floor_us);
  if (!us.ok()) return us.status();
  result.us = *us;
  if (!result.fewer_slices) return result;
  const Result<double> coarse_us = run(question.with_slices(2 * slice), stages);
  if (!coarse_us.ok()) return coarse_us.status();
  const double slope = std::max(*coarse_us - *us, 0.0) / static_cast<double>(slice);
  result.us = std::max(result.us - slope * static_cast<double>(slice - limits.slice_bytes), floor_us);
  // Short slices take more of the thread's time.
  result.us = std::max(result.us, question.thread_us(whole));
  return result;
}

}  // namespace weft::model
