// Revocations: how a rank withdraws exposed memory while peers of its node may still be reading it. A rank
// whose operation fails gives its caller the buffers back. A peer that reads on would take what the caller
// writes there for data. The kernel copies it without an error, and a mapping shows it.
//
//   owner    enters the exposure in its list and raises the count; fence; the memory may change
//   reader   reads the memory; fence; loads the count
//
// So a reader that has read any changed byte finds the count raised. The owner waits for nobody. An exposure
// carries the count of its beginning. While the count is the same, the reader's check is one load of a line
// that stays in its cache. Otherwise the reader looks for the exposure among the later entries.
//
// The list lies in the control segment of its owner, and is a ring. An exposure from before the oldest entry
// counts as revoked.
//
// Thread safety: add() by one thread at a time, the rest from any thread and process.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/shm_fifo.h"

namespace weft::transport::shm {

/// Begins as zeros.
class Revocations {
 public:
  static constexpr uint32_t kMost = 8192;  // entries that the ring keeps

  /// How many exposures were revoked so far, modulo 2^32.
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }

  /// For the owner, before the memory of an exposure changes.
  void add(uint64_t exposure) {
    const uint32_t count = this->count();
    exposures_[count % kMost].store(exposure, std::memory_order_relaxed);
    count_.store(count + 1, std::memory_order_release);
    // A store that follows, also one past the cache, is seen after the count.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  /// For a reader, after it has read memory of an exposure that began at the count `since`. False: the memory
  /// had not changed.
  bool contain(uint64_t exposure, uint32_t since) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint32_t count = count_.load(std::memory_order_acquire);
    return count != since && found(exposure, since, count);
  }

 private:
  bool found(uint64_t exposure, uint32_t since, uint32_t count) const {
    for (uint32_t at = since; at != count && count - since < kMost; ++at)
      if (exposures_[at % kMost].load(std::memory_order_relaxed) == exposure) return true;
    // The owner may have gone round meanwhile. It writes an entry while the count is that entry's number.
    std::atomic_thread_fence(std::memory_order_acquire);
    return this->count() - since >= kMost;
  }

  alignas(kLineBytes) std::atomic<uint32_t> count_;
  alignas(kLineBytes) std::atomic<uint64_t> exposures_[kMost];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace weft::transport::shm
