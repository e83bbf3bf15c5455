#include "plan/crossing.h"

namespace weft::plan {
namespace {

bool crosses(const Plan& plan, const Step& step, const topology::Layout& layout) {
  return step.peer >= 0 && !layout.same_node(plan.rank, step.peer);
}

}  // namespace

Status check_crossing(const Plan& plan, const topology::Layout& layout, const Limits& limits) {
  for (const Step& step : plan.steps) {
    if (!crosses(plan, step, layout)) continue;
    if (step.exposes != Space::none)
      return fail(Code::unsupported, "{} exposes memory to another node, which a plan kernel does not",
                  plan.algorithm);
    if (step.kind == StepKind::put && step.bytes > limits.eager_inter_bytes)
      return fail(Code::unsupported, "{} puts {} bytes to another node at once, and a plan kernel {}",
                  plan.algorithm, step.bytes, limits.eager_inter_bytes);
  }
  return {};
}

Plan crossing_part(const Plan& plan, const topology::Layout& layout, std::string_view name) {
  Builder b(name, plan.request, plan.ranks, plan.rank);
  (void)b.reserve(plan.scratch_bytes);  // what arrives names places in it
  for (const Step& step : plan.steps) {
    if (!crosses(plan, step, layout)) continue;
    if (step.kind == StepKind::put)
      b.put(step.lane, step.peer, plan.sources_of(step)[0], step.dst, step.bytes, step.tag);
    else if (step.kind == StepKind::signal) b.signal(step.lane, step.peer, step.tag);
    else b.wait(step.lane, step.peer, step.tag);
  }
  return b.finish();
}

}  // namespace weft::plan
