#include "plan/plan_program.h"

#include <algorithm>

#include "plan/block_barriers.h"
#include "plan/crossing.h"

namespace weft::plan {
namespace {

namespace cuda = device::cuda;

/// Where the eager puts of one rank to another lie in its slots: by tag, in the order of tags.
struct Slots {
  std::vector<const Step*> put;  // by tag; null: a signal, or no eager put
  std::vector<uint64_t> offset;
  uint64_t bytes = 0;
};

/// What decides how steps become instructions, the same on all ranks.
struct World {
  std::span<const Plan> plans;
  const topology::Layout& layout;
  const Limits& limits;
  const ProgramShape& shape;

  bool crosses(const Plan& plan, const Step& step) const {
    return step.peer >= 0 && !layout.same_node(plan.rank, step.peer);
  }
  bool is_eager(const Plan& plan, const Step& step) const {
    return step.kind == StepKind::put && step.bytes <= limits.eager_bytes(!crosses(plan, step));
  }
  /// A CPU sends what crosses nodes as it is.
  bool in_packets(const Plan& plan, const Step& put) const {
    return put.bytes <= shape.packet_bytes && !crosses(plan, put);
  }
  Slots slots_of(const Plan& sender, int receiver) const;
};

Slots World::slots_of(const Plan& sender, int receiver) const {
  Slots slots;
  for (const Step& step : sender.steps) {
    if ((step.kind != StepKind::put && step.kind != StepKind::signal) || step.peer != receiver) continue;
    if (slots.put.size() <= step.tag) slots.put.resize(step.tag + size_t{1});
    if (is_eager(sender, step)) slots.put[step.tag] = &step;
  }
  for (const Step* put : slots.put) {
    slots.offset.push_back(slots.bytes);
    if (put) slots.bytes += cuda::bytes_in_slot(put->bytes, in_packets(sender, *put));
  }
  return slots;
}

/// Steps that steps of other lanes name.
std::vector<bool> awaited_elsewhere(const Plan& plan) {
  std::vector<bool> awaited(plan.steps.size());
  for (const Step& step : plan.steps)
    for (const StepId id : plan.after(step))
      if (plan.steps[id].lane != step.lane) awaited[id] = true;
  return awaited;
}

Status check_number(const char* what, uint64_t number, uint64_t most) {
  if (number <= most) return {};
  return fail(Code::unsupported, "the plan has {} {}, and a plan kernel takes {}", number, what, most);
}

Status check_plan(const Plan& plan, const World& world) {
  uint64_t sources = 0, dependencies = 0, tags = 0, longest = 0, furthest = plan.scratch_bytes;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::reduce) sources += step.source_count;
    for (const StepId id : plan.after(step)) dependencies += plan.steps[id].lane != step.lane;
    if (step.peer >= 0) tags = std::max<uint64_t>(tags, step.tag + 1);
    longest = std::max(longest, step.bytes);
    furthest = std::max(furthest, step.dst.offset);
  }
  for (const Region& region : plan.regions) furthest = std::max(furthest, region.offset);
  WEFT_TRY(check_number("steps", plan.steps.size(), cuda::kPlanSteps));
  WEFT_TRY(check_number("lanes", static_cast<uint64_t>(plan.lanes()), cuda::kPlanLanes));
  WEFT_TRY(check_number("sources", sources, cuda::kPlanSources));
  WEFT_TRY(check_number("dependencies between lanes", dependencies, cuda::kPlanDependencies));
  WEFT_TRY(check_number("notifications between two ranks", tags, cuda::kPlanTags));
  WEFT_TRY(check_number("bytes in a step", longest, UINT32_MAX));
  WEFT_TRY(check_number("bytes of a buffer", furthest, (uint64_t{1} << cuda::PlanPlace::kOffsetBits) - 1));
  for (int peer = 0; peer < plan.ranks; ++peer) {
    const bool near = world.layout.same_node(plan.rank, peer);
    WEFT_TRY(check_number(near ? "bytes in slots of one rank" : "bytes for one rank of another node",
                          world.slots_of(plan, peer).bytes,
                          near ? world.shape.slot_bytes : world.shape.proxy_slot_bytes));
  }
  return check_crossing(plan, world.layout, world.limits);
}

Status check_all(const World& world) {
  const std::span<const Plan> plans = world.plans;
  if (plans.empty() || plans[0].request.uneven || is_transfer(plans[0].request.collective))
    return fail(Code::unsupported, "a plan kernel serves even collectives only");
  WEFT_TRY(check_number("ranks", plans.size(), cuda::kPlanRanks));
  WEFT_TRY(check_number("blocks in a lane", world.shape.blocks, cuda::kPlanBlocks));
  for (const Plan& plan : plans) WEFT_TRY(check_plan(plan, world));
  return {};
}

/// Turns the plan of one rank into its program; everything has been checked.
class Writer {
 public:
  Writer(const World& world, int rank, const std::vector<bool>& meets)
      : world_(world), plan_(world.plans[static_cast<size_t>(rank)]), meets_(meets) {}

  cuda::PlanProgram write() {
    program_.lanes = static_cast<uint8_t>(std::max(1, plan_.lanes()));
    program_.blocks = static_cast<uint8_t>(world_.shape.blocks);
    program_.rank = static_cast<uint8_t>(plan_.rank);
    program_.ranks = static_cast<uint8_t>(plan_.ranks);
    std::vector<uint8_t> position(plan_.steps.size());
    for (size_t i = 0; i < plan_.lane_steps.size(); ++i)
      position[plan_.lane_steps[i]] = static_cast<uint8_t>(i);
    std::copy(plan_.lane_begin.begin(), plan_.lane_begin.end(), program_.lane_begin);
    const std::vector<bool> announces = awaited_elsewhere(plan_);
    for (StepId id = 0; id < plan_.steps.size(); ++id) {
      const Step& step = plan_.steps[id];
      cuda::Instruction& to = program_.step[position[id]];
      to.peer = static_cast<uint8_t>(step.peer >= 0 ? step.peer : plan_.rank);
      to.tag = static_cast<uint8_t>(step.tag);
      to.bytes = static_cast<uint32_t>(step.bytes);
      if (step.dst.space != Space::none) to.dst = place(step.dst);
      if (meets_[id]) to.flags |= cuda::kMeets;
      if (announces[id]) to.flags |= cuda::kAnnounces;
      if (step.final) to.flags |= cuda::kFinal;
      if (world_.crosses(plan_, step)) to.flags |= cuda::kCrosses;
      to.first_after = afters_;
      for (const StepId after : plan_.after(step))
        if (plan_.steps[after].lane != step.lane) program_.after[afters_++] = position[after], ++to.afters;
      write_kind(step, to);
      if (world_.shape.scaled && id == 0 && to.action == cuda::PlanAction::copy)
        to.action = cuda::PlanAction::scale;
    }
    return program_;
  }

 private:
  static cuda::PlanPlace place(const Region& region) {
    return cuda::PlanPlace::of(static_cast<uint32_t>(region.rank), static_cast<uint32_t>(region.space),
                               region.offset);
  }

  void write_kind(const Step& step, cuda::Instruction& to) {
    switch (step.kind) {
      case StepKind::put:
        to.action = cuda::PlanAction::put;
        to.src = place(plan_.regions[step.sources]);
        if (world_.is_eager(plan_, step)) write_slot(plan_, world_.slots_of(plan_, step.peer), step.tag, to);
        break;
      case StepKind::signal:
        to.action = cuda::PlanAction::signal;
        expose(step, plan_.rank, to);
        break;
      case StepKind::wait: {
        to.action = cuda::PlanAction::wait;
        const Plan& sender = world_.plans[static_cast<size_t>(step.peer)];
        const Slots slots = world_.slots_of(sender, plan_.rank);
        const Step* const put = slots.put[step.tag];
        if (!put) {
          if (uses(step.peer, step.exposes)) expose(step, step.peer, to);
          break;
        }
        to.bytes = static_cast<uint32_t>(put->bytes);
        to.dst = place(put->dst);
        write_slot(sender, slots, step.tag, to);
        break;
      }
      case StepKind::copy:
        to.action = cuda::PlanAction::copy;
        to.src = place(plan_.regions[step.sources]);
        break;
      case StepKind::reduce:
        to.action = cuda::PlanAction::reduce;
        to.first_source = sources_;
        to.sources = static_cast<uint8_t>(step.source_count);
        for (uint32_t s = 0; s < step.source_count; ++s, ++sources_) {
          program_.source[sources_] = place(plan_.sources_of(step)[s]);
          program_.weight[sources_] = static_cast<uint8_t>(plan_.contributions_of(step)[s]);
        }
        break;
    }
  }

  /// Whether the rank reads or writes a space of a peer. Of a space that it only could use, the peer may
  /// already tell the next operation's place.
  bool uses(int peer, Space space) const {
    const auto is_there = [=](const Region& region) { return region.rank == peer && region.space == space; };
    return std::any_of(plan_.regions.begin(), plan_.regions.end(), is_there) ||
           std::any_of(plan_.steps.begin(), plan_.steps.end(),
                       [&](const Step& step) { return step.kind == StepKind::put && is_there(step.dst); });
  }
  /// A signal or a wait that tells where a space of `owner` is.
  static void expose(const Step& step, int owner, cuda::Instruction& to) {
    if (step.exposes != Space::input && step.exposes != Space::output) return;
    to.flags |= cuda::kExposes;
    to.dst = place({owner, step.exposes, 0});
  }

  void write_slot(const Plan& sender, const Slots& slots, uint32_t tag, cuda::Instruction& to) const {
    to.flags |= cuda::kEager;
    if (world_.in_packets(sender, *slots.put[tag])) to.flags |= cuda::kPackets;
    to.slot = static_cast<uint32_t>(slots.offset[tag]);
  }

  const World& world_;
  const Plan& plan_;
  const std::vector<bool>& meets_;
  cuda::PlanProgram program_{};
  uint8_t sources_ = 0, afters_ = 0;
};

}  // namespace

Result<cuda::PlanProgram> make_program(std::span<const Plan> plans, int rank, const topology::Layout& layout,
                                       const Limits& limits, const ProgramShape& shape) {
  const World world{plans, layout, limits, shape};
  WEFT_TRY(check_all(world));
  BlockBarriers barriers;
  for (const Plan& plan : plans) barriers.before.emplace_back(plan.steps.size(), false);
  if (shape.blocks > 1) {
    auto found = find_block_barriers(plans, layout, limits);
    if (!found) return found.status();
    barriers = found.take();
  }
  cuda::PlanProgram program = Writer(world, rank, barriers.before[static_cast<size_t>(rank)]).write();
  program.ordered = barriers.count() > 0 || std::any_of(plans.begin(), plans.end(),
                                                        [](const Plan& plan) { return plan.lanes() > 1; });
  return program;
}

Result<Plan> with_scaled_input(const Plan& plan) {
  const uint64_t bytes = input_bytes(plan.request, plan.ranks, plan.rank);
  if (bytes == 0 || plan.steps.empty()) return plan;
  for (const Step& step : plan.steps)
    if (step.kind == StepKind::signal && step.exposes == Space::input)
      return fail(Code::unsupported, "{} exposes its input, of which there is no scaled copy",
                  plan.algorithm);
  Builder b(plan.algorithm, plan.request, plan.ranks, plan.rank);
  (void)b.reserve(plan.scratch_bytes);
  const uint64_t copy = b.reserve(bytes);
  const StepId first = b.copy(plan.steps[0].lane, b.input(), b.scratch(copy), bytes);
  const auto moved = [&](Region region) {
    const bool own_input = region.rank == plan.rank && region.space == Space::input;
    return own_input ? b.scratch(copy + region.offset) : region;
  };
  std::vector<bool> begun(static_cast<size_t>(plan.lanes()));
  begun[plan.steps[0].lane] = true;
  for (const Step& step : plan.steps) {
    std::vector<StepId> after;
    for (const StepId id : plan.after(step)) after.push_back(id + 1);
    if (!begun[step.lane]) after.push_back(first);
    begun[step.lane] = true;
    const auto sources = plan.sources_of(step);
    switch (step.kind) {
      case StepKind::put:
        b.put(step.lane, step.peer, moved(sources[0]), step.dst, step.bytes, step.tag, after);
        break;
      case StepKind::signal: b.signal(step.lane, step.peer, step.tag, step.exposes, after); break;
      case StepKind::wait: b.wait(step.lane, step.peer, step.tag, step.exposes, after); break;
      case StepKind::copy: b.copy(step.lane, moved(sources[0]), step.dst, step.bytes, after); break;
      case StepKind::reduce: {
        std::vector<Source> scaled;
        for (uint32_t s = 0; s < step.source_count; ++s)
          scaled.push_back({moved(sources[s]), plan.contributions_of(step)[s]});
        b.reduce(step.lane, scaled, step.dst, step.bytes, after);
        break;
      }
    }
  }
  return b.finish();
}

}  // namespace weft::plan
