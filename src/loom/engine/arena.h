// Arena: memory that ranks communicate from: reached by peers of the node without a copy, and registered with
// communicators. The buffers of a rank's steps live in one, and what goes another way, in a smaller one.
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

namespace loom::engine {

class Groups;

class Arena {
 public:
  /// For all groups; all bytes are zeros. A collective of all ranks. Errors: out_of_memory (also where the
  /// ranks of a machine together need more than it has, and then on all ranks), communication_error.
  static Result<Arena> create(int64_t bytes, const Groups& groups);
  /// For these communicators, which must outlive it; those that are nullptr are none. Bytes are undefined. No
  /// collective. Errors: out_of_memory, communication_error.
  static Result<Arena> create(int64_t bytes, std::span<const weftComm_t> comms);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  Arena() = default;
  Status enroll(weftComm_t comm);
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<std::pair<weftComm_t, void*>> handles_;
};

}  // namespace loom::engine
