// MemoryWatch: memory that came into use since a run was opened: the process's own, so of all ranks where
// they are threads.
//
// Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/process_memory.h"
#include "engine/groups.h"

namespace loom::train {

class MemoryWatch {
 public:
  enum class Moment { state, step, evaluation, checkpoint, model };

  /// Looks the first times that each moment comes; looking takes milliseconds. A collective.
  Status look(Moment after, const engine::Groups& groups);

  /// The most that was seen by this rank, and by the one that took most. What one of the moments takes and
  /// gives back is not.
  int64_t own_bytes() const { return own_bytes_; }
  int64_t most_bytes() const { return most_bytes_; }

 private:
  int64_t before_ = resident_bytes();
  int64_t own_bytes_ = 0, most_bytes_ = 0;
  std::array<int, 5> looks_{};  // by Moment
};

}  // namespace loom::train
