// The memory planner: where in one arena each buffer lies. Buffers that are never in use at the same time may
// share memory.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <vector>

#include "program/program.h"

namespace loom::program {

struct MemoryPlan {
  static constexpr int64_t kAlign = 4096;
  std::vector<int64_t> offset;  // of each buffer; -1: unused
  int64_t bytes = 0;            // of the arena
  int64_t tier_bytes = 0;       // of the file that offloaded buffers lie in; their offsets are there
  /// What is in use at the moment when most is: by category, and in all. The arena is at least that large,
  /// and larger by what does not fit together.
  std::array<int64_t, kCategories> peak{};
  int64_t peak_bytes = 0;
  int peak_instruction = 0;
};

/// Persistent buffers first, then the others, largest first, each at the lowest place where it fits.
MemoryPlan plan_memory(const Program& program);

}  // namespace loom::program
