// Costs, and the exact algorithm.
#include "program/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "program/generate.h"
#include "program/schedule.h"

namespace loom::program {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Costs that differ by less are equal: sums of the same numbers in another order.
constexpr double kSame = 1e-9;

int count_of(const PartitionRequest& request) { return static_cast<int>(request.units.size()); }

/// What a partition is judged by after its largest cost.
struct Score {
  double crossing = kNever;
  double squares = kNever;
  bool operator<(const Score& other) const {
    return crossing != other.crossing ? crossing < other.crossing : squares < other.squares;
  }
};

/// Tables over (parts, units): the best way to cut the first `end` units into `parts` parts.
class Cuts {
 public:
  explicit Cuts(const PartitionRequest& request) : request_(request), units_(count_of(request)) {}

  /// The least largest value of any part, or infinity. `value(part, begin, end)` is infinite where a part may
  /// not be.
  template <typename F>
  double least_largest(F&& value) const {
    std::vector<double> best(units_ + 1, kNever);
    best[0] = 0;
    for (int part = 0; part < request_.parts; ++part) {
      std::vector<double> next(units_ + 1, kNever);
      for (int end = part + 1; end <= units_; ++end)
        for (int begin = part; begin < end; ++begin)
          if (best[begin] < kNever && allowed(begin))
            next[end] = std::min(next[end], std::max(best[begin], value(part, begin, end)));
      best = std::move(next);
    }
    return best[units_];
  }

  /// Of all partitions without a part of a higher cost, the one with the best score.
  template <typename F>
  std::vector<int> best_below(double most, F&& value) const {
    std::vector<std::vector<Score>> best(request_.parts + 1, std::vector<Score>(units_ + 1));
    std::vector<std::vector<int>> from(request_.parts + 1, std::vector<int>(units_ + 1, -1));
    best[0][0] = {0, 0};
    for (int part = 0; part < request_.parts; ++part)
      for (int end = part + 1; end <= units_; ++end)
        for (int begin = part; begin < end; ++begin) {
          const Score& before = best[part][begin];
          if (before.crossing == kNever || !allowed(begin)) continue;
          const double cost = value(part, begin, end);
          if (cost > most) continue;
          const double crossing = end < units_ ? request_.units[end - 1].boundary_bytes : 0;
          const Score score{before.crossing + crossing, before.squares + cost * cost};
          if (!(score < best[part + 1][end])) continue;
          best[part + 1][end] = score;
          from[part + 1][end] = begin;
        }
    std::vector<int> first(request_.parts);
    for (int part = request_.parts, end = units_; part > 0; --part) end = first[part - 1] = from[part][end];
    return first;
  }

 private:
  bool allowed(int begin) const { return begin == 0 || may_cut(request_, begin); }

  const PartitionRequest& request_;
  const int units_;
};

/// What a unit has in use while it is computed.
double transient_bytes(const Job& job, const std::vector<model::Unit>& units, const model::Unit& unit,
                       double workspace) {
  const bool shared = job.degree > 1 && !job.shard_optimizer_only;
  // A gradient is made beside the sum, but for an embedding's rows, which are added to it.
  const bool apart = shared || job.microbatches > 1;
  const bool rows =
      unit.kind == model::UnitKind::embedding && !shared && !job.strict && !job.spec.embedding_norm;
  const auto whole = [&](const model::Unit& which, bool gradient) {
    return static_cast<double>(job.padded(which)) *
           static_cast<double>((shared ? job.element_bytes() : 0) + (gradient ? 4 : 0));
  };
  double bytes = workspace + whole(unit, apart && !rows);
  if (unit.borrows >= 0) bytes += whole(units[static_cast<size_t>(unit.borrows)], apart);
  if (unit.kind == model::UnitKind::head)
    bytes += static_cast<double>(
        model::head_recipe(job.spec, job.recipe_sizes(), model::HeadPass::loss).exchanged_bytes);
  return bytes;
}

}  // namespace

WholeCost::WholeCost(const PartitionRequest& request)
    : time_us(time_of(request, 0, count_of(request))), weight(request.memory_weight) {
  for (const UnitCost& unit : request.units) bytes += unit.state_bytes + unit.activation_bytes;
  bytes += transient_bytes_of(request, 0, count_of(request));
}

double WholeCost::of(double part_bytes, double part_us) const {
  return weight * (bytes > 0 ? part_bytes / bytes : 0) + (1 - weight) * (time_us > 0 ? part_us / time_us : 0);
}

double modelled_us(const Job& job, const Machine& machine, int unit) {
  if (unit == job.units() - 1) return compute_us(job, machine, unit, Op::loss);
  const double forward = compute_us(job, machine, unit, Op::forward);
  const double again = job.recomputes(unit) ? forward : 0;
  return forward + again + compute_us(job, machine, unit, Op::backward);
}

bool may_cut(const PartitionRequest& request, int before) {
  for (const auto& [first, last] : request.together)
    if (before > first && before <= last) return false;
  return true;
}

double time_of(const PartitionRequest& request, int begin, int end) {
  double time = 0;
  for (int unit = begin; unit < end; ++unit) time += request.units[unit].time_us;
  return time;
}

double lasting_bytes_of(const PartitionRequest& request, int part, int begin, int end) {
  const double active = request.active.empty() ? 1 : request.active[part];
  double bytes = 0;
  for (int unit = begin; unit < end; ++unit)
    bytes += request.units[unit].state_bytes + active * request.units[unit].activation_bytes;
  return bytes;
}

double transient_bytes_of(const PartitionRequest& request, int begin, int end) {
  double most = 0;
  for (int unit = begin; unit < end; ++unit) most = std::max(most, request.units[unit].transient_bytes);
  return most;
}

double memory_of(const PartitionRequest& request, int part, int begin, int end) {
  return lasting_bytes_of(request, part, begin, end) + transient_bytes_of(request, begin, end);
}

double cost_of(const PartitionRequest& request, int part, int begin, int end) {
  return WholeCost(request).of(memory_of(request, part, begin, end), time_of(request, begin, end));
}

Result<Partition> partition_by_hand(const PartitionRequest& request, std::vector<int> first_units) {
  const int units = count_of(request), parts = static_cast<int>(first_units.size());
  if (parts != request.parts)
    return fail(Code::invalid_argument,
                "the partition has {} parts, must have {}: the first unit of each, in their order", parts,
                request.parts);
  if (first_units.front() != 0)
    return fail(
        Code::invalid_argument,
        "the partition begins with unit {}, which leaves out those before it: must begin with unit 0, "
        "the embedding",
        first_units.front());
  Partition partition;
  for (int part = 0; part < parts; ++part) {
    const int begin = first_units[part], end = part + 1 < parts ? first_units[part + 1] : units;
    if (begin >= end || end > units)
      return fail(
          Code::invalid_argument,
          "part {} of the partition has no units: it begins with unit {} and the next one with {}; first "
          "units must ascend and be below {}",
          part, begin, end, units);
    for (const auto& [first, last] : request.together)
      if (begin > first && begin <= last)
        return fail(
            Code::invalid_argument,
            "the partition separates units {} and {} before unit {}, but they share parameters and must be "
            "in one part: a part may begin with unit {} at the latest, or after unit {}",
            first, last, begin, first, last);
    partition.costs.push_back(cost_of(request, part, begin, end));
    if (end < units) partition.crossing_bytes += request.units[end - 1].boundary_bytes;
  }
  partition.first_units = std::move(first_units);
  partition.largest = *std::max_element(partition.costs.begin(), partition.costs.end());
  return partition;
}

Result<Partition> partition_exactly(const PartitionRequest& request) {
  const Cuts cuts(request);
  const double limit = request.memory_limit_bytes;
  const auto besides = [&](int part) {
    return request.besides.empty() ? 0 : request.besides[static_cast<size_t>(part)];
  };
  const auto memory = [&](int part, int begin, int end) {
    return memory_of(request, part, begin, end) + besides(part);
  };
  // Costs are asked for again and again: a table of them.
  const int units = count_of(request);
  constexpr double kMostCosts = 1 << 27;  // a GiB of them
  if (static_cast<double>(request.parts) * (units + 1.0) * (units + 1.0) > kMostCosts)
    return fail(Code::invalid_argument,
                "{} units into {} parts are too many for trying all cuts, must be {:.0f} units at most; "
                "parallel.partition \"even\" or the first unit of each part does without",
                units, request.parts, std::sqrt(kMostCosts / request.parts) - 1);
  std::vector<double> table(static_cast<size_t>(request.parts) * (units + 1) * (units + 1));
  const auto at = [&](int part, int begin, int end) -> double& {
    return table[(static_cast<size_t>(part) * (units + 1) + begin) * (units + 1) + end];
  };
  const WholeCost whole(request);
  for (int part = 0; part < request.parts; ++part)
    for (int begin = 0; begin < units; ++begin) {
      double lasting = 0, transient = 0, time_us = 0;  // in the order of memory_of() and time_of()
      for (int end = begin + 1; end <= units; ++end) {
        lasting += lasting_bytes_of(request, part, end - 1, end);
        transient = std::max(transient, request.units[end - 1].transient_bytes);
        time_us += request.units[end - 1].time_us;
        const double bytes = lasting + transient;
        at(part, begin, end) = limit > 0 && bytes + besides(part) > limit ? kNever : whole.of(bytes, time_us);
      }
    }
  const double largest = cuts.least_largest(at);
  if (largest == kNever) {
    const double least = cuts.least_largest(memory);
    if (least == kNever)
      return fail(Code::invalid_argument,
                  "{} units, some of which must stay together, cannot be cut into {} parts", units,
                  request.parts);
    return fail(Code::out_of_memory,
                "no partition into {} parts keeps each below {:.1f} MiB; the least possible is {:.1f} MiB",
                request.parts, limit / (1 << 20), least / (1 << 20));
  }
  Result<Partition> partition = partition_by_hand(request, cuts.best_below(largest * (1 + kSame), at));
  LOOM_TRY(partition.status());
  Partition best = partition.take();
  best.proven = true;
  return best;
}

PartitionRequest partition_request(const Job& job, const Machine& machine, const MeasuredUnits& measured) {
  const std::vector<model::Unit> units = job.held_units();
  const model::BufferSizes sizes = sizes_of(job);
  const auto each = static_cast<double>(job.state_bytes());
  PartitionRequest request;
  for (const model::Unit& unit : units) {
    const MeasuredUnit seen = measured.empty() ? MeasuredUnit() : measured[static_cast<size_t>(unit.index)];
    UnitCost cost;
    cost.time_us = measured.empty() ? modelled_us(job, machine, unit.index) : seen.us;
    cost.state_bytes = seen.state * each * static_cast<double>(job.shard(unit));
    if (job.shard_optimizer_only)  // whole parameters and gradients besides
      cost.state_bytes += static_cast<double>((job.element_bytes() + 4) * job.padded(unit));
    if (unit.borrows >= 0 && job.pipeline_degree > 1)
      cost.state_bytes += each * static_cast<double>(job.shard(units[unit.borrows]));
    if (unit.kind != model::UnitKind::head) cost.activation_bytes = static_cast<double>(sizes.activation);
    const bool saves = unit.kind == model::UnitKind::block && !job.recomputes(unit.index);
    if (saves)
      cost.activation_bytes = (cost.activation_bytes + static_cast<double>(sizes.saved)) * seen.saved;
    // In a file, but for some next to the computing: as many, wherever the cuts are.
    if (job.offload) cost.activation_bytes = 0;
    if (saves) cost.activation_bytes += static_cast<double>(sizes.kept);  // offloading leaves it in memory
    cost.transient_bytes = transient_bytes(
        job, units, unit, seen.workspace * static_cast<double>(sizes.workspace_of(unit.kind)));
    cost.boundary_bytes = 2 * static_cast<double>(sizes.activation);
    request.units.push_back(cost);
  }
  request.parts = job.pipeline_degree * job.virtual_stages;
  // A stage's parts share its activations; each is charged with its own.
  for (int part = 0; part < request.parts; ++part) {
    int open = 0, most = 0;
    for (const Pass& pass : schedule_of(job, part % job.pipeline_degree)) {
      if (pass.part != part) continue;
      open += pass.forward ? 1 : -1;
      most = std::max(most, open);
    }
    request.active.push_back(most);
  }
  return request;
}

std::string to_string(const Job& job, const PartitionRequest& request, const Partition& partition) {
  const std::vector<model::Unit> units = model::units_of(job.spec);
  std::string text =
      fmt::format("{:<6}{:<7}{:<24}{:>8}{:>10}{:>10}\n", "part", "stage", "units", "cost", "time %", "MiB");
  const double all = time_of(request, 0, count_of(request));
  const int parts = static_cast<int>(partition.first_units.size());
  for (int part = 0; part < parts; ++part) {
    const int begin = partition.first_units[part];
    const int end = part + 1 < parts ? partition.first_units[part + 1] : count_of(request);
    const std::string names =
        begin + 1 == end ? units[begin].name() : units[begin].name() + " to " + units[end - 1].name();
    text += fmt::format("{:<6}{:<7}{:<24}{:>8.3f}{:>10.1f}{:>10.2f}\n", part, part % job.pipeline_degree,
                        names, partition.costs[part], time_of(request, begin, end) / all * 100,
                        memory_of(request, part, begin, end) / (1 << 20));
  }
  // Of several parts a stage has, their sum counts.
  std::vector<double> costs(static_cast<size_t>(job.pipeline_degree), 0.0);
  for (size_t part = 0; part < partition.costs.size(); ++part)
    costs[part % costs.size()] += partition.costs[part];
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size());
  const auto largest = std::max_element(costs.begin(), costs.end());
  return text + fmt::format(
                    "cost = {:.2f} of memory + {:.2f} of time; {} {} costs most, {:.1f} % more than the "
                    "mean; {:.1f} "
                    "KiB cross for each microbatch{}\n",
                    request.memory_weight, 1 - request.memory_weight,
                    job.virtual_stages > 1 ? "stage" : "part", largest - costs.begin(),
                    (*largest / mean - 1) * 100, partition.crossing_bytes / 1024,
                    partition.proven ? "; no partition is better" : "");
}

}  // namespace loom::program
