// Copies of a few bytes, without the call of memcpy, which costs several times as much as the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft {

/// The longest one.
inline constexpr size_t kShortCopy = 32;

namespace detail {

template <typename Word>
void copy_ends(std::byte* to, const std::byte* from, size_t bytes) {
  Word head, tail;
  std::memcpy(&head, from, sizeof(Word));
  std::memcpy(&tail, from + bytes - sizeof(Word), sizeof(Word));
  std::memcpy(to, &head, sizeof(Word));
  std::memcpy(to + bytes - sizeof(Word), &tail, sizeof(Word));
}

}  // namespace detail

/// memcpy of at most kShortCopy bytes.
inline void copy_short(void* to_address, const void* from_address, size_t bytes) {
  auto* to = static_cast<std::byte*>(to_address);
  auto* from = static_cast<const std::byte*>(from_address);
  struct Half {
    uint64_t words[2];
  };
  if (bytes == 8) {
    std::memcpy(to, from, 8);
  } else if (bytes >= 16) {
    detail::copy_ends<Half>(to, from, bytes);
  } else if (bytes >= 8) {
    detail::copy_ends<uint64_t>(to, from, bytes);
  } else if (bytes >= 4) {
    detail::copy_ends<uint32_t>(to, from, bytes);
  } else if (bytes > 0) {
    to[0] = from[0];
    to[bytes / 2] = from[bytes / 2];
    to[bytes - 1] = from[bytes - 1];
  }
}

}  // namespace weft
