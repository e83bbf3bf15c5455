// Arena: memory that ranks communicate from: reached by peers of the node without a copy, and registered with
// communicators. The buffers of a rank's steps live in one, on the device that it computes on. What goes
// another way lives in a smaller one, of the host.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/memory.h"

namespace loom::engine {

class Groups;
class RankDevice;

class Arena {
 public:
  /// For all groups that move it; all bytes are zeros. A collective of all ranks. Errors: out_of_memory (also
  /// where the ranks of a machine together need more than it has, and then on all ranks),
  /// communication_error.
  static Result<Arena> create(int64_t bytes, const Groups& groups, RankDevice& device);
  /// For these communicators, which must outlive it; those that are nullptr are none. Bytes are undefined. No
  /// collective. Errors: out_of_memory, communication_error.
  static Result<Arena> create(int64_t bytes, std::span<const weftComm_t> comms);
  Arena(Arena&& other) noexcept = default;
  Arena& operator=(Arena&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(handles_, other.handles_);
    return *this;
  }
  ~Arena();

  std::byte* data() const { return memory_.data(); }
  template <typename T>
  T* as() const {
    return memory_.as<T>();
  }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  explicit Arena(device::Memory memory) : memory_(std::move(memory)) {}
  Status enroll(std::span<const weftComm_t> comms);
  device::Memory memory_;
  std::vector<std::pair<weftComm_t, void*>> handles_;
};

}  // namespace loom::engine
