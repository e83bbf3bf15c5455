// FNV-1a, the hash of Fowler, Noll and Vo: a few instructions a byte, and the same on every machine, so that
// ranks may compare what they get. It keeps nobody out who looks for two texts with one hash.
//
// Thread safety: all functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

inline constexpr uint32_t kFirstHash32 = 2166136261u;
inline constexpr uint64_t kFirstHash64 = 14695981039346656037u;

/// Hashes of bytes. `before`: the hash of what comes before them.
constexpr uint32_t hash_32(std::string_view bytes, uint32_t before = kFirstHash32) {
  for (const char byte : bytes) before = (before ^ static_cast<uint8_t>(byte)) * 16777619u;
  return before;
}
constexpr uint64_t hash_64(std::string_view bytes, uint64_t before = kFirstHash64) {
  for (const char byte : bytes) before = (before ^ static_cast<uint8_t>(byte)) * 1099511628211u;
  return before;
}
/// Of the eight bytes of a number, the lowest first.
constexpr uint32_t hash_32(uint64_t number, uint32_t before) {
  for (int byte = 0; byte < 8; ++byte)
    before = (before ^ static_cast<uint8_t>(number >> (8 * byte))) * 16777619u;
  return before;
}

}  // namespace weft
