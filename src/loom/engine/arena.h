// Arena: the one allocation that a rank's buffers live in, reached by peers of the node without a copy and
// registered with the communicators of all groups.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "engine/groups.h"

namespace loom::engine {

class Arena {
 public:
  /// All bytes are zeros. A collective of all ranks. Errors: out_of_memory (also where the ranks of a machine
  /// together need more than it has, and then on all ranks), communication_error.
  static Result<Arena> create(int64_t bytes, const Groups& groups);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Arena() = default;
  Status enroll(weftComm_t comm);
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<std::pair<weftComm_t, void*>> handles_;
};

}  // namespace loom::engine
