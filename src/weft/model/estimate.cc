#include "model/estimate.h"

#include <algorithm>

namespace weft::model {
namespace {

using plan::Collective;
using plan::Request;

// Steps to simulate for one estimate. A step takes about 0.2 µs to plan and simulate.
constexpr uint64_t kAllRanksSteps =
    1500;  // … of collectives without a root, for which there is a cheaper way
constexpr uint64_t kRootedSteps = 20000;  // … of those with one, for which there is none
constexpr uint64_t kOneRankSteps = 3000;

struct Question {
  const plan::Algorithm& algorithm;
  const topology::Layout& layout;
  const Machine& machine;
  const plan::Limits& limits;
  SimulateOptions options;
};

bool point_to_point(Collective collective) {
  return collective == Collective::send || collective == Collective::recv;
}

uint64_t working_set(const Request& request, int ranks) {
  uint64_t most = 0;
  for (const int rank : {0, ranks - 1, std::clamp(request.root, 0, ranks - 1)}) {
    most = std::max(most, plan::input_bytes(request, ranks, rank) + plan::output_bytes(request, ranks, rank));
  }
  return most;
}

/// The shortest message whose slices still show the pattern of a long one: two slices in every part that a
/// rank cares for. Where `count` is the whole message it may be cut by ranks first.
uint64_t least_count(const Request& request, int ranks, uint64_t slice_bytes) {
  const bool whole = request.collective == Collective::all_reduce || plan::has_root(request.collective);
  const uint64_t parts = whole ? ranks : 1;
  return std::max<uint64_t>(2 * slice_bytes * parts / request.element_bytes, 1);
}

/// A message with at most about `most_steps` steps at a typical rank: halved until it is, but not below
/// least_count.
uint64_t shorten(const Question& question, Request request, uint64_t most_steps, uint64_t* steps) {
  const int rank = question.layout.ranks() / 2;
  const uint64_t least = least_count(request, question.layout.ranks(), question.limits.slice_bytes);
  // Long messages are not planned at full length even once.
  request.count = std::min(request.count, least * 16);
  for (;; request.count = std::max(request.count / 2, least)) {
    *steps = question.algorithm.make(request, question.layout, question.limits, rank).steps.size();
    if (*steps <= most_steps || request.count <= least) return request.count;
  }
}

Result<double> run(const Question& question, const Request& request, Method method) {
  const auto& [algorithm, layout, machine, limits, options] = question;
  if (method == Method::mirrored) {
    // Ranks are not all alike: at the rims of a recursion or of a node some do more. The slowest counts.
    double slowest = 0;
    for (const int rank : {0, layout.ranks() / 2}) {
      const plan::Plan plan = algorithm.make(request, layout, limits, rank);
      const Result<Simulation> simulation = simulate_mirrored(plan, layout, machine, limits, options);
      if (!simulation.ok()) return simulation.status();
      slowest = std::max(slowest, simulation->total_us);
    }
    return slowest;
  }
  std::vector<plan::Plan> plans;
  plans.reserve(layout.ranks());
  for (int rank = 0; rank < layout.ranks(); ++rank)
    plans.push_back(algorithm.make(request, layout, limits, rank));
  const Result<Simulation> simulation = simulate(plans, layout, machine, limits, options);
  if (!simulation.ok()) return simulation.status();
  return simulation->total_us;
}

/// Time is affine in the length once slices are in flight: two points give it.
Result<Estimate> run_shortened(const Question& question, Request request, uint64_t shortened, Method method) {
  const uint64_t wanted = request.count;
  request.count = shortened;
  const Result<double> longer = run(question, request, method);
  if (!longer.ok()) return longer.status();
  if (shortened >= wanted) return Estimate{*longer, method, false};
  request.count = shortened - shortened / 4;
  const Result<double> shorter = run(question, request, method);
  if (!shorter.ok()) return shorter.status();
  const double per_element =
      std::max(*longer - *shorter, 0.0) / static_cast<double>(shortened - request.count);
  return Estimate{*longer + per_element * static_cast<double>(wanted - shortened), method, true};
}

}  // namespace

const char* name_of(Method method) {
  switch (method) {
    case Method::simulated: return "simulated";
    case Method::mirrored: return "one rank simulated";
    case Method::formula: return "formula";
  }
  return "unknown";
}

Result<Estimate> estimate(const plan::Algorithm& algorithm, const Request& request,
                          const topology::Layout& layout, const Machine& machine,
                          const plan::Limits& limits) {
  if (point_to_point(request.collective)) {
    // The other end's plan is of another request, and who this end is has not been said.
    const Link& link = layout.nodes() > 1 ? machine.inter : machine.intra;
    return Estimate{
        link.alpha_us + 2 * link.overhead_us + static_cast<double>(request.bytes()) / link.bytes_per_us,
        Method::formula, false};
  }
  const auto ranks = static_cast<uint64_t>(layout.ranks());
  const Question question{algorithm,
                          layout,
                          machine,
                          limits,
                          {.keep_steps = false, .working_set_bytes = working_set(request, layout.ranks())}};
  const bool rooted = plan::has_root(request.collective);
  const uint64_t budget = rooted ? kRootedSteps : kAllRanksSteps;
  uint64_t steps = 0;
  const uint64_t count = shorten(question, request, std::max<uint64_t>(budget / ranks, 1), &steps);
  if (rooted || steps * ranks <= budget) return run_shortened(question, request, count, Method::simulated);

  const uint64_t longer = shorten(question, request, kOneRankSteps, &steps);
  const Result<Estimate> mirrored = run_shortened(question, request, longer, Method::mirrored);
  // Ranks that play different parts may have no mirror image that ends; then all of them must be run.
  return mirrored.ok() ? mirrored : run_shortened(question, request, count, Method::simulated);
}

}  // namespace weft::model
