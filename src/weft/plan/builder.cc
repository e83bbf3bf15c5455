// Builder: appends steps, and derives at the end what an executor would otherwise have to search for.
#include <algorithm>
#include <utility>

#include "plan/plan.h"

namespace weft::plan {
namespace {

/// Renumbers the tags of one direction, pair by pair, to 0, 1, 2, … in ascending order. `begin_of_peer`
/// receives ranks + 1 positions: how many notifications the peers before each have.
template <typename IsOurs>
void number_tags(Plan& plan, IsOurs is_ours, std::vector<uint32_t>& begin_of_peer) {
  std::vector<std::vector<Step*>> of_peer(static_cast<size_t>(plan.ranks));
  for (Step& step : plan.steps) {
    if (is_ours(step)) of_peer[static_cast<size_t>(step.peer)].push_back(&step);
  }
  begin_of_peer.assign(1, 0);
  for (auto& steps : of_peer) {
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Step* a, const Step* b) { return a->tag < b->tag; });
    uint32_t next = 0;
    for (Step* step : steps) step->tag = next++;
    begin_of_peer.push_back(begin_of_peer.back() + next);
  }
}

void order_by_lane(Plan& plan, int lanes) {
  plan.lane_begin.assign(static_cast<size_t>(lanes) + 1, 0);
  for (const Step& step : plan.steps) ++plan.lane_begin[step.lane + size_t{1}];
  for (size_t lane = 1; lane < plan.lane_begin.size(); ++lane)
    plan.lane_begin[lane] += plan.lane_begin[lane - 1];
  plan.lane_steps.resize(plan.steps.size());
  std::vector<uint32_t> next = plan.lane_begin;
  for (StepId id = 0; id < plan.steps.size(); ++id) plan.lane_steps[next[plan.steps[id].lane]++] = id;
}

bool names_none(std::span<const StepId> after) {
  return std::all_of(after.begin(), after.end(), [](StepId id) { return id == kNoStep; });
}

}  // namespace

Builder::Builder(std::string_view algorithm, const Request& request, int ranks, int rank) {
  plan_.algorithm = algorithm;
  plan_.request = request;
  plan_.ranks = ranks;
  plan_.rank = rank;
}

uint64_t Builder::reserve(uint64_t bytes) {
  const uint64_t offset = (plan_.scratch_bytes + 63) / 64 * 64;
  if (bytes > 0) plan_.scratch_bytes = offset + bytes;
  return offset;
}

StepId Builder::put(int lane, int peer, Region src, Region dst, uint64_t bytes, uint32_t tag,
                    std::span<const StepId> after) {
  if (bytes == 0) return signal(lane, peer, tag, Space::none, after);
  const Source source{src};
  return add({.kind = StepKind::put, .tag = tag, .peer = peer, .bytes = bytes, .dst = dst}, lane,
             {&source, 1}, after);
}

StepId Builder::signal(int lane, int peer, uint32_t tag, Space exposes, std::span<const StepId> after) {
  return add({.kind = StepKind::signal, .exposes = exposes, .tag = tag, .peer = peer}, lane, {}, after);
}

StepId Builder::wait(int lane, int peer, uint32_t tag, Space learns, std::span<const StepId> after) {
  return add({.kind = StepKind::wait, .exposes = learns, .tag = tag, .peer = peer}, lane, {}, after);
}

StepId Builder::copy(int lane, Region src, Region dst, uint64_t bytes, std::span<const StepId> after) {
  if ((bytes == 0 || src == dst) && names_none(after)) return kNoStep;
  const Source source{src};
  return add({.kind = StepKind::copy, .bytes = bytes, .dst = dst}, lane, {&source, 1}, after);
}

StepId Builder::reduce(int lane, std::span<const Source> sources, Region dst, uint64_t bytes,
                       std::span<const StepId> after) {
  if (bytes == 0 && names_none(after)) return kNoStep;
  uint64_t contributions = 0;
  for (const Source& source : sources) contributions += source.contributions;
  const bool final = contributions == static_cast<uint64_t>(plan_.ranks);
  return add({.kind = StepKind::reduce, .final = final, .bytes = bytes, .dst = dst}, lane, sources, after);
}

StepId Builder::add(Step step, int lane, std::span<const Source> sources, std::span<const StepId> after) {
  lanes_ = std::max(lanes_, lane + 1);
  step.lane = static_cast<uint16_t>(lane);
  step.sources = static_cast<uint32_t>(plan_.regions.size());
  step.source_count = static_cast<uint32_t>(sources.size());
  for (const Source& source : sources) {
    plan_.regions.push_back(source.region);
    plan_.contributions.push_back(source.contributions);
  }
  step.after = static_cast<uint32_t>(plan_.dependencies.size());
  for (StepId id : after) {
    if (id != kNoStep) plan_.dependencies.push_back(id);
  }
  step.after_count = static_cast<uint32_t>(plan_.dependencies.size()) - step.after;
  plan_.steps.push_back(step);
  return static_cast<StepId>(plan_.steps.size() - 1);
}

Plan Builder::finish() {
  std::vector<uint32_t> send_begin;  // of no use to an executor
  number_tags(
      plan_, [](const Step& s) { return sends(s.kind); }, send_begin);
  number_tags(
      plan_, [](const Step& s) { return s.kind == StepKind::wait; }, plan_.wait_begin);
  order_by_lane(plan_, lanes_);
  plan_.has_dependents = !plan_.dependencies.empty();
  lanes_ = 0;
  return std::exchange(plan_, {});
}

}  // namespace weft::plan
