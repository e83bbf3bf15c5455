// Painted memory: filled with a pattern, so that one can count later how much was written. It measures what
// is used, not what was asked for.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace loom::engine {

/// Memory that is not written keeps it: no computation gives a whole line of such bytes. As floating point
/// of any size it is a small positive number, so reads of unwritten memory cause no overflow and no NaN.
constexpr std::byte kPaint{0x25};

void paint(std::span<std::byte> memory);

/// Bytes of the lines of 64 that are not all paint.
int64_t written_bytes(std::span<const std::byte> memory);

/// A painted buffer of its own, aligned to pages as an arena's are. Throws std::bad_alloc.
class Painted {
 public:
  explicit Painted(int64_t bytes = 0);

  template <typename E = std::byte>
  E* as() {
    return reinterpret_cast<E*>(memory_.get());
  }
  int64_t bytes() const { return bytes_; }
  int64_t written_bytes() const {
    return engine::written_bytes({memory_.get(), static_cast<size_t>(bytes_)});
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t bytes_ = 0;
};

}  // namespace loom::engine
