// A mutex that one thread takes most of the time. That thread enters and leaves by plain stores.
//
// An ordinary mutex costs its owner two locked instructions. Each waits until all earlier stores are done.
// After a message whose cache line must first come from its reader, that takes as long as the message
// itself. So a thread that has taken the mutex many times in a row gets the *bias*. From then on it writes
// into a seat of its own that it is in, and checks whether it still has the bias. This is Dekker's protocol,
// and other threads pay for its fence. A thread that wants the mutex takes the ordinary one, takes the bias
// away, lets membarrier(2) put a fence into the owner, and waits until the owner's seat is empty. After each
// such loss, the next bias needs twice as many calls in a row. Without membarrier in the kernel, no thread
// gets the bias.
//
// Why only one thread is in. Only a thread with the ordinary mutex gives or takes the bias. So at most one
// seat has it, and only its owner writes into that seat.
//   * A thread takes the bias away from a seat and then finds the seat empty. Either the owner's "I am in" is
//     older than the fence, and would have been seen. Or the owner checks the bias after the fence, finds it
//     gone, clears the seat and takes the ordinary mutex.
//   * An owner may be stopped between its two checks of the bias for any time, while the bias goes to other
//     threads. When it goes on, it writes into its own seat, which no thread reads then, and its second check
//     fails. Its own seat has the bias again only if the owner has earned it, which it cannot while it is
//     stopped. (With one word for all owners, its late "I am out" would be taken for that of an owner that is
//     in.)
// A seat is never given to another thread. If none is left, a thread does without the bias. A thread with the
// address of an ended thread counts as that thread.
//
// The same idea as biased locking in the HotSpot virtual machine (Dice, Kogan and Lev describe its
// asymmetric form).
//
// Thread safety: lock, try_lock and unlock as std::mutex's; meets *Lockable*.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/thread.h"

namespace weft {

class BiasedMutex {
 public:
  void lock() {
    if (!enter_biased()) lock_slowly();
  }
  /// May be false although nobody is in: if another thread has the bias.
  bool try_lock() { return enter_biased() || try_slowly(); }
  void unlock() {
    if (Seat* const seat = by_bias_) {
      by_bias_ = nullptr;
      seat->taken.store(false, std::memory_order_release);
    } else {
      unlock_slowly();
    }
  }

  /// Whether the calling thread has the bias; under the lock. For tests.
  bool biased() const { return own_seat() != nullptr; }

 private:
  friend class BiasedMutexTest;

  static constexpr size_t kSeats = 4;  // a cache line of them
  struct Seat {
    const void* owner = nullptr;  // set once, before the seat first has the bias
    std::atomic<bool> taken{false};
  };
  static constexpr uint32_t kFirstRow = 64, kLongestRow = 1 << 20, kNever = UINT32_MAX;

  /// The seat that has the bias, if it is the calling thread's.
  Seat* own_seat() const {
    Seat* const seat = bias_.load(std::memory_order_acquire);
    return seat && seat->owner == this_thread() ? seat : nullptr;
  }
  bool enter_biased() {
    Seat* const seat = own_seat();
    return seat && sit_down(*seat);
  }
  bool sit_down(Seat& seat) {
    seat.taken.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the other half is in take_bias_away()
    if (bias_.load(std::memory_order_acquire) == &seat) [[likely]] {
      by_bias_ = &seat;
      return true;
    }
    seat.taken.store(false, std::memory_order_release);
    return false;
  }

  void lock_slowly();
  bool try_slowly();
  void unlock_slowly();
  void take_bias_away(Seat& seat);
  Seat* seat_of(const void* thread);

  std::atomic<Seat*> bias_{nullptr};  // written under mutex_
  Seat* by_bias_ = nullptr;  // seat by which the thread inside entered; null: by mutex_; it writes this
  std::mutex mutex_;
  // Under mutex_, but for what seats say:
  const void* last_ = nullptr;  // who had it last
  uint32_t row_ = 0;            // how many times in a row
  uint32_t needed_ = kFirstRow;
  std::array<Seat, kSeats> seats_;
};

}  // namespace weft
