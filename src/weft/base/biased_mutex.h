// A mutex that mostly one thread takes, over and over: that thread enters and leaves by plain stores.
//
// A mutex costs its owner two locked instructions, and each waits until all stores before it are done: after
// a message whose cache line must first come from its reader, as long as the message itself takes. So a
// thread that has taken the mutex many times in a row gets the *bias*: from then on it says in a seat of its
// own that it is in, and looks whether it still has the bias. That is Dekker's protocol, whose fence the
// others pay for: who wants the mutex takes the ordinary one, takes the bias away, lets membarrier(2) put a
// fence into the owner, and waits until the owner's seat is empty. Each time that happens, the next bias
// needs twice as many calls in a row. Where the kernel has no membarrier, nobody ever gets the bias.
//
// Why only one is in. The bias is given and taken by who has the ordinary mutex alone, so at most one seat
// has it, and its owner is the only one who ever writes in that seat.
//   * Who takes the bias away from a seat and then finds it empty: the owner's "I am in" is either older than
//     the fence, and then seen, or the owner's look at the bias comes after it, and finds the bias gone. The
//     owner then clears the seat and goes the ordinary way.
//   * An owner may be stopped between its two looks at the bias for as long as the system likes, while the
//     bias goes to others: what it writes when it goes on is in its own seat, which nobody has a reason to
//     look at, and its second look fails. It may find the bias at its own seat again only if it has earned it
//     itself, which it cannot while it is stopped. (With one word for all owners, its late "I am out" would
//     be taken for that of an owner who is in.)
// Seats are never given to another thread; a thread that finds none left does without the bias. One that has
// the address of a thread that is gone is, for this purpose, that thread.
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
  Seat* by_bias_ = nullptr;           // by which seat who is in got in, null: by mutex_; theirs
  std::mutex mutex_;
  // Under mutex_, but for what seats say:
  const void* last_ = nullptr;  // who had it last
  uint32_t row_ = 0;            // how many times in a row
  uint32_t needed_ = kFirstRow;
  std::array<Seat, kSeats> seats_;
};

}  // namespace weft
