// Plans as text, a line a step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/plan.h"

namespace weft::plan {
namespace {

std::string text_of(const Region& region, int own_rank) {
  const std::string place = fmt::format("{}+{}", name_of(region.space), region.offset);
  return region.rank == own_rank ? place : fmt::format("rank {} {}", region.rank, place);
}

std::string what(const Plan& plan, const Step& step) {
  std::vector<std::string> sources;
  for (uint32_t r = step.sources; r < step.sources + step.source_count; ++r) {
    sources.push_back(text_of(plan.regions[r], plan.rank));
    if (plan.contributions[r] > 1) sources.back() += fmt::format(" ({} ranks)", plan.contributions[r]);
  }
  switch (step.kind) {
    case StepKind::put:
      return fmt::format("{} B  {} -> {}, tag {}", step.bytes, sources[0], text_of(step.dst, plan.rank),
                         step.tag);
    case StepKind::signal:
      return fmt::format("rank {}, tag {}{}{}", step.peer, step.tag,
                         step.exposes == Space::none ? "" : ", exposes ",
                         step.exposes == Space::none ? "" : name_of(step.exposes));
    case StepKind::wait:
      return fmt::format("rank {}, tag {}{}{}", step.peer, step.tag,
                         step.exposes == Space::none ? "" : ", learns ",
                         step.exposes == Space::none ? "" : name_of(step.exposes));
    case StepKind::copy:
    case StepKind::reduce:
      return fmt::format("{} B  {} -> {}{}", step.bytes, fmt::join(sources, " + "),
                         text_of(step.dst, plan.rank), step.final ? ", final" : "");
  }
  return {};
}

}  // namespace

std::string to_string(const Plan& plan) {
  const Request& request = plan.request;
  std::string text = fmt::format("{} by {}: rank {} of {}, {} elements of {} B", name_of(request.collective),
                                 plan.algorithm, plan.rank, plan.ranks, request.count, request.element_bytes);
  if (has_root(request.collective)) text += fmt::format(", root {}", request.root);
  if (request.strict) text += ", strict";
  const auto counted = [](size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  text += fmt::format("; {} in {}, {} B of scratch\n", counted(plan.steps.size(), "step"),
                      counted(static_cast<size_t>(plan.lanes()), "lane"), plan.scratch_bytes);
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    text += fmt::format("{:>4}  lane {:<3} {:<6} {}", id, step.lane, name_of(step.kind), what(plan, step));
    if (step.after_count > 0) text += fmt::format(", after {}", fmt::join(plan.after(step), ", "));
    text += '\n';
  }
  return text;
}

}  // namespace weft::plan
