#include "engine/run/plan_tables.h"

#include <algorithm>

#include "base/hash.h"
#include "plan/uneven.h"

namespace weft::engine {
namespace {

int32_t find(const std::map<std::pair<int, plan::Space>, int32_t>& handle_of, int rank, plan::Space space) {
  const auto found = handle_of.find({rank, space});
  return found == handle_of.end() ? -1 : found->second;
}

/// What goes from the lower rank to the higher, then the other direction.
std::vector<uint32_t> pair_signatures_of(const plan::Plan& plan) {
  const plan::Request& request = plan.request;
  if (!request.uneven || request.collective != plan::Collective::all_to_all) return {};
  std::vector<uint32_t> signatures;
  for (int peer = 0; peer < plan.ranks; ++peer) {
    const uint64_t given = request.uneven->given[static_cast<size_t>(peer)].count;
    const uint64_t taken = request.uneven->taken[static_cast<size_t>(peer)].count;
    const uint32_t first = hash_32(plan.rank < peer ? given : taken, kFirstHash32);
    signatures.push_back(hash_32(plan.rank < peer ? taken : given, first));
  }
  return signatures;
}

}  // namespace

std::shared_ptr<const PlanTables> PlanTables::make(plan::Plan plan, const topology::Layout& layout,
                                                   int streak, double predicted_us) {
  auto tables = std::make_shared<PlanTables>();
  PlanTables& t = *tables;
  t.plan = std::move(plan);
  t.bytes[0] = plan::input_bytes(t.plan.request, t.plan.ranks, t.plan.rank);
  t.bytes[1] = plan::output_bytes(t.plan.request, t.plan.ranks, t.plan.rank);
  t.bytes[2] = t.plan.scratch_bytes;
  t.streak = streak;
  t.predicted_us = static_cast<float>(predicted_us);
  t.algorithm_hash = hash_32(t.plan.algorithm);
  t.pair_signatures = pair_signatures_of(t.plan);
  const HandleOf handle_of = t.number_handles();
  t.handle_of_step.assign(t.plan.steps.size(), -1);
  t.put_of_step.assign(t.plan.steps.size(), -1);
  t.handle_of_region.assign(t.plan.regions.size(), -1);
  for (size_t id = 0; id < t.plan.steps.size(); ++id) t.derive_step(id, handle_of, layout);
  t.fast = t.is_fast();
  return tables;
}

PlanTables::HandleOf PlanTables::number_handles() {
  HandleOf handle_of;
  handle_of_notification.assign(plan.notifications(), -1);
  for (const plan::Step& step : plan.steps) {
    if (step.kind != plan::StepKind::wait || step.exposes == plan::Space::none) continue;
    const auto [it, is_new] =
        handle_of.try_emplace({step.peer, step.exposes}, static_cast<int32_t>(handle_of.size()));
    handle_of_notification[plan.wait_begin[step.peer] + step.tag] = it->second;
  }
  handles = static_cast<uint32_t>(handle_of.size());
  return handle_of;
}

void PlanTables::derive_step(size_t id, const HandleOf& handle_of, const topology::Layout& layout) {
  const plan::Step& step = plan.steps[id];
  const bool inside = step.peer >= 0 && layout.same_node(plan.rank, step.peer);
  if (step.peer >= 0 && !inside) between_nodes = true;
  if (step.kind == plan::StepKind::put) {
    handle_of_step[id] = find(handle_of, step.peer, step.dst.space);
    put_of_step[id] = static_cast<int32_t>(puts++);
  } else if (step.kind == plan::StepKind::signal && step.exposes != plan::Space::none) {
    exposes[static_cast<int>(step.exposes)] = true;
    if (inside) exposes_inside[static_cast<int>(step.exposes)] = true;
  }
  for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r)
    if (plan.regions[r].rank != plan.rank)
      handle_of_region[r] = find(handle_of, plan.regions[r].rank, plan.regions[r].space);
}

bool PlanTables::is_fast() const {
  const bool short_steps = std::all_of(plan.steps.begin(), plan.steps.end(),
                                       [](const plan::Step& step) { return step.bytes <= kFastStepBytes; });
  return handles == 0 && !exposes[0] && !exposes[1] && !exposes[2] && !between_nodes &&
         !plan.request.uneven && plan.lanes() == 1 && short_steps && plan.scratch_bytes <= kInlineScratch;
}

}  // namespace weft::engine
