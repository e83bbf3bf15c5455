// What steps do to the memory of ranks, and which of it conflicts. Private to the verifier.
#pragma once

#include <vector>

#include "plan/verify_world.h"

namespace weft::plan::verifier {

struct Access {
  Event event;
  bool writes;
  Interval bytes;
  Region region;
};

/// Everything that is done to each rank's memory.
std::vector<std::vector<Access>> list_accesses(const World& world, const Timeline& timeline);

/// Two accesses to the same bytes, by index, one of them a write; `first` is earlier in the timeline's order.
struct Conflict {
  uint32_t first, second;
};

/// The conflicts among the accesses to one rank's memory, in the timeline's order of their first halves.
/// Sorts the accesses.
std::vector<Conflict> find_conflicts(const Timeline& timeline, std::vector<Access>& accesses);

}  // namespace weft::plan::verifier
