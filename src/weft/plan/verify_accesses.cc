#include "plan/verify_accesses.h"

#include <algorithm>

namespace weft::plan::verifier {

std::vector<std::vector<Access>> list_accesses(const World& world, const Timeline& t) {
  std::vector<std::vector<Access>> of_rank(static_cast<size_t>(world.ranks()));
  for (Event event = 1; event < t.first_event.back(); ++event) {
    const StepRef ref = t.step_of[event];
    const Step& step = world.step(ref);
    if (!moves(step.kind) || step.bytes == 0) continue;
    const Interval target = world.locate(ref.rank, step.dst, step.bytes);
    const auto sources = world.plan(ref.rank).sources_of(step);
    if (step.kind == StepKind::copy && world.locate(ref.rank, sources[0], step.bytes) == target) continue;
    const bool is_put = step.kind == StepKind::put;
    const Event reads = is_put ? t.read_of[event] : event, writes = is_put ? reads + 1 : event;
    for (const Region& source : sources) {
      of_rank[source.rank].push_back({reads, false, world.locate(ref.rank, source, step.bytes), source});
    }
    of_rank[step.dst.rank].push_back({writes, true, target, step.dst});
  }
  return of_rank;
}

std::vector<Conflict> find_conflicts(const Timeline& t, std::vector<Access>& accesses) {
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return std::pair(a.bytes.arena, a.bytes.begin) < std::pair(b.bytes.arena, b.bytes.begin);
  });
  std::vector<Conflict> conflicts;
  std::vector<uint32_t> open_reads, open_writes;
  const auto meet = [&](uint32_t current, std::vector<uint32_t>& open) {
    std::erase_if(open, [&](uint32_t i) {
      return accesses[i].bytes.arena != accesses[current].bytes.arena ||
             accesses[i].bytes.end <= accesses[current].bytes.begin;
    });
    for (uint32_t i : open) {
      if (accesses[i].event == accesses[current].event) continue;
      const bool in_order = t.position[accesses[i].event] < t.position[accesses[current].event];
      conflicts.push_back(in_order ? Conflict{i, current} : Conflict{current, i});
    }
  };
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    meet(i, open_writes);
    if (accesses[i].writes) meet(i, open_reads);
    (accesses[i].writes ? open_writes : open_reads).push_back(i);
  }
  std::sort(conflicts.begin(), conflicts.end(), [&](const Conflict& a, const Conflict& b) {
    return t.position[accesses[a.first].event] < t.position[accesses[b.first].event];
  });
  return conflicts;
}

}  // namespace weft::plan::verifier
