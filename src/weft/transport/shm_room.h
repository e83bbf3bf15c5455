// How much there is room for in the FIFO between two ranks of a node (shm_fifo.h). Here because the model
// must know how far a rank gets ahead of another.
//
// Thread safety: values and pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::transport::shm {

inline constexpr size_t kLineBytes = 64;
inline constexpr uint64_t kSlots = 64;  // messages

namespace detail {
inline constexpr uint64_t round_to_lines(uint64_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}
}  // namespace detail

/// Of the ring for payloads that do not fit a slot, where the longest has `eager_bytes`: four of those, and a
/// power of two.
constexpr uint64_t ring_bytes_for(uint64_t eager_bytes) {
  return std::bit_ceil(4 * detail::round_to_lines(eager_bytes));
}

}  // namespace weft::transport::shm
