// MemoryWatch: memory that came into use since a run was opened: the process's own, so of all ranks where
// they are threads; or that of a GPU, so of all who use it.
//
// Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "base/process_memory.h"
#include "engine/groups.h"

namespace loom::train {

class MemoryWatch {
 public:
  enum class Moment { state, step, evaluation, checkpoint, model };

  /// From now on it is the memory of which `used` tells the bytes in use.
  void watch(std::function<int64_t()> used);
  /// Looks the first times that each moment comes; looking takes milliseconds. A collective.
  Status look(Moment after, const engine::Groups& groups);

  /// The most that was seen by this rank, and by the one that took most. What one of the moments takes and
  /// gives back is not.
  int64_t own_bytes() const { return own_bytes_; }
  int64_t most_bytes() const { return most_bytes_; }

 private:
  std::function<int64_t()> used_ = resident_bytes;
  int64_t before_ = used_();
  int64_t own_bytes_ = 0, most_bytes_ = 0;
  std::array<int, 5> looks_{};  // by Moment
};

}  // namespace loom::train
