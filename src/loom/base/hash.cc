#include "base/hash.h"

#include <cstring>

namespace loom {

void Hash64::add(std::span<const std::byte> bytes) {
  add(uint64_t{bytes.size()});
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    state_ = mix64(state_ ^ word);
  }
}

uint64_t hash_of(std::span<const std::byte> bytes) {
  constexpr size_t kRows = 4, kBlock = kRows * sizeof(uint64_t);
  uint64_t rows[kRows] = {1, 2, 3, 4}, words[kRows];
  size_t at = 0;
  for (; at + kBlock <= bytes.size(); at += kBlock) {
    std::memcpy(words, bytes.data() + at, kBlock);
    for (size_t row = 0; row < kRows; ++row) rows[row] = mix64(rows[row] ^ words[row]);
  }
  Hash64 hash;
  hash.add(uint64_t{bytes.size()});
  for (const uint64_t row : rows) hash.add(row);
  hash.add(bytes.subspan(at));
  return hash.value();
}

}  // namespace loom
