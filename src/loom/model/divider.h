// Divider: cuts a buffer into named arrays, one after the other, each aligned to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loom::model {

/// Hands out arrays of a buffer. With a null buffer it only counts.
class Divider {
 public:
  explicit Divider(std::byte* buffer) : buffer_(buffer) {}
  template <typename E>
  E* take(int64_t elements) {
    std::byte* at = buffer_ ? buffer_ + bytes_ : nullptr;
    bytes_ += (elements * static_cast<int64_t>(sizeof(E)) + 63) / 64 * 64;
    return reinterpret_cast<E*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* buffer_;
  int64_t bytes_ = 0;
};

}  // namespace loom::model
