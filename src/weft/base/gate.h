// A gate: threads pass in and out. The owner of what is behind it waits until no thread is inside before it
// takes that down.
//
// The gate turns no thread away. The closing side sets a word of its own before it drains the gate, and an
// entering thread reads that word after it has entered. This is Dekker's protocol. The closing side pays for
// its fence (membarrier(2)), because a locked instruction is slow on each way in and out: it waits until all
// earlier stores are done. After a message, that lasts until the message's cache line has come from the
// reader. So the first threads get a *seat* each, in which they count by plain stores. No other thread ever
// writes there, and a seat is not given to another thread. (A thread with the address of an ended one counts
// as that one.) All other threads count together, as do all threads where the kernel has no membarrier.
//
// Thread safety: all functions. Invariant: a pass ends on the thread on which it began.
#pragma once

#include <array>
#include <atomic>

#include "base/thread.h"

namespace weft {

class Gate {
 public:
  class Pass;

  /// Returns when all are out who entered before: those who enter later must see that they should not.
  void drain();

 private:
  static constexpr size_t kSeats = 4;
  struct Seat {
    std::atomic<const void*> owner{nullptr};  // set once
    std::atomic<int> inside{0};
  };

  /// Where the thread counts; null: among the others.
  Seat* enter() {
    for (Seat& seat : seats_)
      if (seat.owner.load(std::memory_order_relaxed) == this_thread()) return enter(seat);
    return enter_slowly();
  }
  static Seat* enter(Seat& seat) {
    seat.inside.store(seat.inside.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the other half is in drain()
    return &seat;
  }
  void leave(Seat* seat) {
    if (seat) [[likely]]
      seat->inside.store(seat->inside.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    else others_.fetch_sub(1);
  }

  Seat* enter_slowly();
  bool anybody_inside() const;

  std::array<Seat, kSeats> seats_;
  std::atomic<int> others_{0};
};

/// Being inside.
class Gate::Pass {
 public:
  /// null: of nothing.
  explicit Pass(Gate* gate) : gate_(gate), seat_(gate ? gate->enter() : nullptr) {}
  ~Pass() {
    if (gate_) gate_->leave(seat_);
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

 private:
  Gate* const gate_;
  Seat* const seat_;
};

}  // namespace weft
