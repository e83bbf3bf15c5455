// Small functions of 64 bits. None is a secret's: they tell accidents, not attacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace loom {

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014), the finalizer of SplitMix64:
/// a bijection in which each bit of the input changes half of the output's.
constexpr uint64_t mix64(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

/// A hash over pieces, which depends on their content and their borders only.
class Hash64 {
 public:
  /// Adds a number.
  void add(uint64_t value) { state_ = mix64(state_ ^ mix64(value)); }
  /// Adds bytes, with their length.
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x6c6f6f6d;
};

/// A hash of many bytes: of four rows of words side by side, none of which waits for another.
uint64_t hash_of(std::span<const std::byte> bytes);

}  // namespace loom
