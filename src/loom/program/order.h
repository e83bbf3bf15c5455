// When instructions are over, and how long buffers are in use: what the verifier and the memory planner agree
// on.
//
// Time is counted in half steps: instruction i begins at 2i and, on lane 0, is over at 2i + 1. A collective
// is over when the first instruction that comes after it begins, or else at the end of the program.
#pragma once

#include <algorithm>
#include <vector>

#include "program/program.h"

namespace loom::program {

inline std::vector<int64_t> ends_of(const Program& program) {
  const int64_t count = static_cast<int64_t>(program.instructions.size());
  std::vector<int64_t> ends(count);
  for (int64_t i = 0; i < count; ++i) ends[i] = program.instructions[i].lane == 0 ? 2 * i + 1 : 2 * count;
  for (int64_t i = 0; i < count; ++i)
    for (const int before : program.instructions[i].after) ends[before] = std::min(ends[before], 2 * i);
  return ends;
}

/// [begin, end) of a buffer's use; empty when nobody uses it.
struct Lifetime {
  int64_t begin = 0;
  int64_t end = 0;
  bool overlaps(const Lifetime& other) const { return begin < other.end && other.begin < end; }
};

inline std::vector<Lifetime> lifetimes_of(const Program& program) {
  const std::vector<int64_t> ends = ends_of(program);
  std::vector<Lifetime> lifetimes(program.buffers.size());
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for (const Use& use : program.instructions[i].uses) {
      Lifetime& lifetime = lifetimes[use.buffer];
      if (lifetime.end == 0) lifetime.begin = 2 * static_cast<int64_t>(i);
      lifetime.end = std::max(lifetime.end, ends[i]);
    }
  const int64_t whole = 2 * static_cast<int64_t>(program.instructions.size());
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].persistent) lifetimes[b] = {0, whole};
  return lifetimes;
}

}  // namespace loom::program
