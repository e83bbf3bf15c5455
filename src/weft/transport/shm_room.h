// The room in the FIFO between two ranks of a node (shm_fifo.h). The model must know it too, since it limits
// how far a rank gets ahead of another, so it stands in a file of its own.
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

/// Size of the ring for payloads that do not fit a slot: room for four of the longest, `eager_bytes` each,
/// and a power of two.
constexpr uint64_t ring_bytes_for(uint64_t eager_bytes) {
  return std::bit_ceil(4 * detail::round_to_lines(eager_bytes));
}

}  // namespace weft::transport::shm
