#include "engine/run/prepared.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/hash.h"
#include "plan/uneven.h"

namespace weft::engine {
namespace {

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

std::shared_ptr<const Prepared> Prepared::make(plan::Plan plan, const topology::Layout& layout, int streak,
                                               double predicted_us) {
  auto prepared = std::make_shared<Prepared>();
  Prepared& p = *prepared;
  p.plan = std::move(plan);
  p.streak = streak;
  p.predicted_us = static_cast<float>(predicted_us);
  p.algorithm_hash = hash_32(p.plan.algorithm);
  p.pair_signatures = pair_signatures_of(p.plan);

  std::map<std::pair<int, plan::Space>, int32_t> handle;
  p.handle_of_notification.assign(p.plan.notifications(), -1);
  for (const plan::Step& step : p.plan.steps) {
    if (step.kind != plan::StepKind::wait || step.exposes == plan::Space::none) continue;
    auto [it, is_new] = handle.try_emplace({step.peer, step.exposes}, static_cast<int32_t>(handle.size()));
    p.handle_of_notification[p.plan.wait_begin[step.peer] + step.tag] = it->second;
  }
  p.handles = static_cast<uint32_t>(handle.size());
  auto find = [&](int rank, plan::Space space) {
    auto it = handle.find({rank, space});
    return it == handle.end() ? -1 : it->second;
  };

  p.handle_of_step.assign(p.plan.steps.size(), -1);
  p.put_of_step.assign(p.plan.steps.size(), -1);
  p.handle_of_region.assign(p.plan.regions.size(), -1);
  for (size_t id = 0; id < p.plan.steps.size(); ++id) {
    const plan::Step& step = p.plan.steps[id];
    if (step.peer >= 0 && !layout.same_node(p.plan.rank, step.peer)) p.between_nodes = true;
    if (step.kind == plan::StepKind::put) {
      p.handle_of_step[id] = find(step.peer, step.dst.space);
      p.put_of_step[id] = static_cast<int32_t>(p.puts++);
    } else if (step.kind == plan::StepKind::signal && step.exposes != plan::Space::none) {
      p.exposes[static_cast<int>(step.exposes)] = true;
      if (layout.same_node(p.plan.rank, step.peer)) p.exposes_inside[static_cast<int>(step.exposes)] = true;
    }
    for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r)
      if (p.plan.regions[r].rank != p.plan.rank)
        p.handle_of_region[r] = find(p.plan.regions[r].rank, p.plan.regions[r].space);
  }
  const bool short_steps = std::all_of(p.plan.steps.begin(), p.plan.steps.end(),
                                       [](const plan::Step& step) { return step.bytes <= kBriefBytes; });
  p.brief = p.handles == 0 && !p.exposes[0] && !p.exposes[1] && !p.exposes[2] && !p.between_nodes &&
            !p.plan.request.uneven && p.plan.lanes() == 1 && short_steps &&
            p.plan.scratch_bytes <= kInlineScratch;
  return prepared;
}

}  // namespace weft::engine
