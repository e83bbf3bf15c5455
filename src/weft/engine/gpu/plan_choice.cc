#include "engine/gpu/plan_choice.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/gpu_paths.h"
#include "plan/crossing.h"
#include "plan/plan_program.h"

namespace weft::engine {
namespace {

namespace cuda = device::cuda;

constexpr uint64_t kBytesOfBlock = 8 << 10;
constexpr uint32_t kMostEagerBlocks = 8;

struct Candidate {
  const char* algorithm;
  const char* name;
  bool exposes;
};
constexpr Candidate kInside[] = {{"one_hop", "one_hop_kernel", false}, {"direct", "direct_kernel", true}};
constexpr Candidate kAcross[] = {{"one_hop", "one_hop_proxy", false},
                                 {"all_to_all", "all_to_all_proxy", true},
                                 {"recursive_doubling", "recursive_doubling_proxy", false},
                                 {"binomial", "binomial_proxy", false}};

std::span<const Candidate> candidates_for(const KernelReach& reach) {
  if (reach.layout.nodes() > 1) return kAcross;
  return kInside;
}

/// One put to a rank is a whole message, or there are only puts to exposed memory.
plan::Limits limits_of(const Candidate& candidate, const KernelReach& reach) {
  const bool across = reach.layout.nodes() > 1;
  return {.eager_intra_bytes = candidate.exposes && !across ? 0 : reach.slot_bytes,
          .eager_inter_bytes = reach.message_bytes,
          .slice_bytes = UINT64_MAX};
}

bool exposes_buffers(const plan::Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const plan::Step& step) {
    return step.exposes == plan::Space::input || step.exposes == plan::Space::output;
  });
}

Status check_reach(const std::vector<plan::Plan>& plans, const KernelReach& reach) {
  if (std::none_of(plans.begin(), plans.end(), exposes_buffers)) return {};
  const plan::Request& request = plans[0].request;
  if (reach.exposed_bytes == 0) return fail(Code::unsupported, "ranks do not reach each other's buffers");
  for (int rank = 0; rank < reach.ranks(); ++rank) {
    const uint64_t longest =
        std::max(input_bytes(request, reach.ranks(), rank), output_bytes(request, reach.ranks(), rank));
    if (longest > reach.exposed_bytes)
      return fail(Code::unsupported, "a buffer has {} bytes, and ranks of several processes reach {} of it",
                  longest, reach.exposed_bytes);
  }
  return {};
}

Result<std::vector<plan::Plan>> make_plans(const plan::Algorithm& algorithm, const plan::Request& request,
                                           bool scaled, const KernelReach& reach,
                                           const plan::Limits& limits) {
  WEFT_TRY(algorithm.fits(request, reach.layout, limits));
  std::vector<plan::Plan> plans;
  for (int rank = 0; rank < reach.ranks(); ++rank) {
    plan::Plan plan = algorithm.make(request, reach.layout, limits, rank);
    if (scaled) {
      auto with_scaled = plan::with_scaled_input(plan);
      if (!with_scaled) return with_scaled.status();
      plan = with_scaled.take();
    }
    if (plan.scratch_bytes > reach.scratch_bytes)
      return fail(Code::unsupported, "the plan needs {} bytes of scratch, and a plan kernel has {}",
                  plan.scratch_bytes, reach.scratch_bytes);
    plans.push_back(std::move(plan));
  }
  return plans;
}

/// Blocks of a lane: all lanes of a rank are on the device together.
Result<uint32_t> blocks_of(const Candidate& candidate, const plan::Request& request, const KernelReach& reach,
                           const std::vector<plan::Plan>& plans) {
  int lanes = 1;
  for (const plan::Plan& plan : plans) lanes = std::max(lanes, plan.lanes());
  const uint32_t most = std::min(candidate.exposes ? cuda::kPlanBlocks : kMostEagerBlocks,
                                 reach.blocks / static_cast<uint32_t>(lanes));
  if (most == 0)
    return fail(Code::unsupported, "the plan has {} lanes, and the device has room for {} blocks of a rank",
                lanes, reach.blocks);
  const uint64_t wanted = (request.bytes() + kBytesOfBlock - 1) / kBytesOfBlock;
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, most));
}

Result<KernelPlan> make(const Candidate& candidate, const plan::Request& request, bool scaled, int rank,
                        const KernelReach& reach, const model::Machine* machine) {
  const bool across = reach.layout.nodes() > 1;
  if (candidate.exposes && !across)
    WEFT_TRY(model::exposed_kernel_fits(request, reach.ranks(), machine != nullptr));
  const plan::Algorithm* const algorithm = plan::find_algorithm(request.collective, candidate.algorithm);
  if (!algorithm) return fail(Code::unsupported, "{} has no such algorithm", name_of(request.collective));
  const plan::Limits limits = limits_of(candidate, reach);
  const auto plans = make_plans(*algorithm, request, scaled, reach, limits);
  if (!plans) return plans.status();
  WEFT_TRY(check_reach(*plans, reach));
  const auto blocks = blocks_of(candidate, request, reach, *plans);
  if (!blocks) return blocks.status();
  const auto program = plan::make_program(*plans, rank, reach.layout, limits,
                                          {.blocks = *blocks,
                                           .slot_bytes = reach.slot_bytes,
                                           .proxy_slot_bytes = reach.proxy_bytes,
                                           .scaled = scaled});
  if (!program) return program.status();
  KernelPlan made{candidate.name, candidate.algorithm, *program, 0, {}};
  if (across) made.crossing = crossing_part((*plans)[static_cast<size_t>(rank)], reach.layout, made.name);
  if (!machine) return made;
  auto us = across              ? model::proxy_kernel_us(*machine, *algorithm, request, reach.layout, limits)
            : candidate.exposes ? model::exposed_kernel_us(*machine, request, reach.ranks(), *blocks)
                                : model::plan_kernel_us(*machine, request, reach.ranks());
  if (!us) return us.status();
  made.predicted_us = *us;
  return made;
}

}  // namespace

Result<KernelPlan> choose_kernel_plan(const plan::Request& request, bool scaled, int rank,
                                      const KernelReach& reach, const model::Machine* machine) {
  if (request.bytes() == 0 || request.uneven || plan::is_transfer(request.collective))
    return fail(Code::unsupported, "a plan kernel serves even collectives only");
  if (reach.ranks() > static_cast<int>(cuda::kPlanRanks))
    return fail(Code::unsupported, "a plan kernel serves at most {} ranks", cuda::kPlanRanks);
  Result<KernelPlan> best = fail(Code::unsupported, "a plan kernel has no plan for it");
  std::string reasons;
  for (const Candidate& candidate : candidates_for(reach)) {
    Result<KernelPlan> made = make(candidate, request, scaled, rank, reach, machine);
    if (!made)
      reasons +=
          fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", candidate.algorithm, made.status().message());
    else if (!best || made->predicted_us < best->predicted_us) best = std::move(made);
  }
  if (!best) return fail(Code::unsupported, "{}", reasons);
  return best;
}

}  // namespace weft::engine
