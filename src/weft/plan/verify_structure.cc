// Structure: what can be said of single steps, and of the two ends of notifications.
#include <fmt/format.h>

#include <algorithm>

#include "plan/uneven.h"
#include "plan/verify_world.h"

namespace weft::plan::verifier {
namespace {

constexpr Code kBroken = Code::internal_error;

}  // namespace

uint64_t World::size_of(int rank, Space space) const {
  if (space == Space::input) return input_bytes(plan(rank).request, ranks(), rank);
  if (space == Space::output) return output_bytes(plan(rank).request, ranks(), rank);
  return space == Space::scratch ? plan(rank).scratch_bytes : 0;
}

uint64_t World::size_for(int by, int owner, Space space) const {
  const uint64_t all = size_of(owner, space);
  return by == owner ? all : std::min(all, shared_block(plan(owner).request, space, by).bytes);
}

Interval World::locate(int by, const Region& region, uint64_t bytes) const {
  const Request& request = plan(region.rank).request;
  const bool output_inside =
      request.collective == Collective::reduce_scatter || request.collective == Collective::scatter;
  int arena = static_cast<int>(region.space);
  uint64_t base = 0;
  if (in_place_ && region.space != Space::scratch) {
    arena = static_cast<int>(Space::output);
    if (output_inside == (region.space == Space::output)) base = in_place_offset(request, region.rank);
  }
  if (by != region.rank) base += shared_block(request, region.space, by).begin;
  return {region.rank, arena, base + region.offset, base + region.offset + bytes};
}

std::string World::name_of(const Region& region, uint64_t bytes) {
  return fmt::format("rank {}'s {} [{}, {})", region.rank, plan::name_of(region.space), region.offset,
                     region.offset + bytes);
}

std::string World::name_of(StepRef ref) const {
  const Step& step = this->step(ref);
  std::string what = plan::name_of(step.kind);
  if (!moves(step.kind) || step.kind == StepKind::put) {
    what +=
        fmt::format(" {} rank {}, tag {}", step.kind == StepKind::wait ? "for" : "to", step.peer, step.tag);
  }
  if (moves(step.kind)) what += fmt::format(" into {}", name_of(step.dst, step.bytes));
  return fmt::format("rank {} step {} ({})", ref.rank, ref.id, what);
}

Status World::check_structure() {
  senders_.assign(plans_.size(), {});
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!takes_part(rank)) continue;
    WEFT_TRY(check_tables(rank));
    for (StepId id = 0; id < plan(rank).steps.size(); ++id) WEFT_TRY(check_step({rank, id}));
    WEFT_TRY(match_waits(rank));
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    if (takes_part(rank)) WEFT_TRY(match_sends(rank));
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    if (takes_part(rank)) WEFT_TRY(check_all_sent(rank));
  }
  return {};
}

Status World::check_tables(int rank) const {
  const Plan& p = plan(rank);
  if (p.rank != rank || p.ranks != ranks()) {
    return fail(kBroken, "the plan of rank {} of {} says it is rank {} of {}", rank, ranks(), p.rank,
                p.ranks);
  }
  if (p.wait_begin.size() != plans_.size() + 1 || p.lane_begin.empty() ||
      p.lane_steps.size() != p.steps.size() || p.lane_begin.back() != p.steps.size()) {
    return fail(kBroken, "rank {}: the tables of lanes and waits do not cover its {} steps", rank,
                p.steps.size());
  }
  for (int lane = 0; lane < p.lanes(); ++lane) {
    for (uint32_t i = p.lane_begin[lane]; i < p.lane_begin[lane + 1]; ++i) {
      const StepId id = p.lane_steps[i];
      const bool ascends = i == p.lane_begin[lane] || p.lane_steps[i - 1] < id;
      if (id >= p.steps.size() || p.steps[id].lane != lane || !ascends) {
        return fail(kBroken, "rank {}: step {} is out of place in the table of lane {}", rank, id, lane);
      }
    }
  }
  return {};
}

Status World::check_step(StepRef ref) const {
  const Plan& p = plan(ref.rank);
  const Step& step = this->step(ref);
  if (p.contributions.size() != p.regions.size() || step.source_count > p.regions.size() ||
      step.sources > p.regions.size() - step.source_count || step.after_count > p.dependencies.size() ||
      step.after > p.dependencies.size() - step.after_count) {
    return fail(kBroken, "rank {} step {}: its sources or dependencies lie outside the plan's", ref.rank,
                ref.id);
  }
  for (StepId id : p.after(step)) {
    if (id >= p.steps.size())
      return fail(kBroken, "rank {} step {} comes after step {}, of {}", ref.rank, ref.id, id,
                  p.steps.size());
  }
  if (step.kind == StepKind::put || !moves(step.kind)) {
    if (step.peer < 0 || step.peer >= ranks() || step.peer == ref.rank || !takes_part(step.peer)) {
      return fail(kBroken, "rank {} step {} names rank {}, must be another in [0, {})", ref.rank, ref.id,
                  step.peer, ranks());
    }
  }
  if (step.exposes != Space::none) {
    if (moves(step.kind)) return fail(kBroken, "{} exposes a space; only signals do", name_of(ref));
    const int owner = step.kind == StepKind::signal ? ref.rank : step.peer;
    const int learns = step.kind == StepKind::signal ? step.peer : ref.rank;
    if (size_for(learns, owner, step.exposes) == 0) {
      return fail(kBroken, "{} exposes {}, of which rank {} has 0 bytes", name_of(ref),
                  plan::name_of(step.exposes), owner);
    }
  }
  if (step.final && step.kind != StepKind::reduce)
    return fail(kBroken, "{} is final; only reduces are", name_of(ref));
  return moves(step.kind) ? check_regions(ref) : Status{};
}

Status World::check_regions(StepRef ref) const {
  const Plan& p = plan(ref.rank);
  const Step& step = this->step(ref);
  const auto sources = p.sources_of(step);
  const auto in_bounds = [&](const Region& region) -> Status {
    if (region.rank < 0 || region.rank >= ranks() || !takes_part(region.rank) ||
        region.space == Space::none) {
      return fail(kBroken, "rank {} step {}: a region of rank {}'s {}, which is none", ref.rank, ref.id,
                  region.rank, plan::name_of(region.space));
    }
    const uint64_t size = size_for(ref.rank, region.rank, region.space);
    if (step.bytes <= size && region.offset <= size - step.bytes) return {};
    return fail(kBroken, "rank {} step {}: {} is out of bounds, the buffer has {} bytes", ref.rank, ref.id,
                name_of(region, step.bytes), size);
  };
  WEFT_TRY(in_bounds(step.dst));
  for (const Region& source : sources) WEFT_TRY(in_bounds(source));
  const int owner = step.kind == StepKind::put ? step.peer : ref.rank;
  if (step.dst.rank != owner) return fail(kBroken, "{} must write to rank {}", name_of(ref), owner);
  if (step.dst.space == Space::input) return fail(kBroken, "{} writes to an input", name_of(ref));
  if (step.kind == StepKind::reduce ? sources.empty() : sources.size() != 1) {
    return fail(kBroken, "{} has {} sources", name_of(ref), sources.size());
  }
  for (const Region& source : sources) {
    if (source.rank == ref.rank) continue;
    if (step.kind == StepKind::put || !layout_.same_node(source.rank, ref.rank)) {
      return fail(kBroken, "{} reads {}, which it cannot reach", name_of(ref), name_of(source, step.bytes));
    }
  }
  if (step.kind == StepKind::put && step.bytes == 0) return fail(kBroken, "{} puts 0 bytes", name_of(ref));
  return check_overlap(ref);
}

Status World::check_overlap(StepRef ref) const {
  const Step& step = this->step(ref);
  const uint64_t element = plan(ref.rank).request.element_bytes;
  const Interval dst = locate(ref.rank, step.dst, step.bytes);
  const bool is_reduce = step.kind == StepKind::reduce;
  if (is_reduce && (step.bytes % element != 0 || step.dst.offset % element != 0)) {
    return fail(kBroken, "{} cuts elements of {} bytes", name_of(ref), element);
  }
  for (const Region& source : plan(ref.rank).sources_of(step)) {
    if (is_reduce && source.offset % element != 0)
      return fail(kBroken, "{} cuts elements of {} bytes", name_of(ref), element);
    const Interval src = locate(ref.rank, source, step.bytes);
    if (src.overlaps(dst) && src != dst) {
      return fail(kBroken, "{} overlaps its source {}", name_of(ref), name_of(source, step.bytes));
    }
  }
  return {};
}

Status World::match_waits(int rank) {
  const Plan& p = plan(rank);
  std::vector<StepId> waits(p.notifications(), kNoStep);
  for (StepId id = 0; id < p.steps.size(); ++id) {
    const Step& step = p.steps[id];
    if (step.kind != StepKind::wait) continue;
    const uint32_t number = p.wait_begin[step.peer] + step.tag;
    if (step.tag >= p.notifications_from(step.peer) || number >= waits.size()) {
      return fail(kBroken, "{}: the plan knows of {} notifications from there", name_of(StepRef{rank, id}),
                  p.notifications_from(step.peer));
    }
    if (waits[number] != kNoStep) {
      return fail(kBroken, "{}: step {} waits for the same tag", name_of(StepRef{rank, id}), waits[number]);
    }
    waits[number] = id;
  }
  for (int peer = 0; peer < ranks(); ++peer) {
    for (uint32_t number = p.wait_begin[peer]; number < p.wait_begin[peer + 1]; ++number) {
      if (number < waits.size() && waits[number] != kNoStep) continue;
      return fail(kBroken, "rank {} never waits for tag {} of rank {}", rank, number - p.wait_begin[peer],
                  peer);
    }
  }
  senders_[rank].assign(waits.size(), {});
  return {};
}

Status World::match_sends(int rank) {
  const Plan& p = plan(rank);
  for (StepId id = 0; id < p.steps.size(); ++id) {
    const Step& step = p.steps[id];
    if (!sends(step.kind)) continue;
    const auto& begin = plan(step.peer).wait_begin;
    if (step.tag >= plan(step.peer).notifications_from(rank)) {
      return fail(kBroken, "{}: rank {} does not wait for it", name_of(StepRef{rank, id}), step.peer);
    }
    StepRef& sender = senders_[step.peer][begin[rank] + step.tag];
    if (sender.rank >= 0) {
      return fail(kBroken, "{}: step {} sends the same tag", name_of(StepRef{rank, id}), sender.id);
    }
    sender = {rank, id};
  }
  return {};
}

Status World::check_all_sent(int rank) const {
  const Plan& p = plan(rank);
  for (StepId id = 0; id < p.steps.size(); ++id) {
    const Step& wait = p.steps[id];
    if (wait.kind != StepKind::wait) continue;
    const StepRef from = sender(rank, wait);
    if (from.rank < 0) return fail(kBroken, "{}: nobody sends that", name_of(StepRef{rank, id}));
    if (step(from).exposes == wait.exposes) continue;
    return fail(kBroken, "{} expects to learn {}, but {} exposes {}", name_of(StepRef{rank, id}),
                plan::name_of(wait.exposes), name_of(from), plan::name_of(step(from).exposes));
  }
  return {};
}

}  // namespace weft::plan::verifier
