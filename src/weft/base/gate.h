// A gate: threads pass in and out, and whoever takes down what is behind it waits until nobody is inside.
//
// It does not turn anybody away. Who closes says so in a word of its own before it drains the gate, and who
// comes in looks at that word after it has entered. That is Dekker's protocol, whose fence the closing side
// pays for (membarrier(2)): a locked instruction on the way in and on the way out would wait until all stores
// before it are done, after a message until its cache line has come from the reader. So the first threads
// that come get a *seat* each, in which they count by plain stores; nobody else ever writes there, and seats
// are not given to another thread. (A thread that has the address of one that is gone is, for this purpose,
// that one.) The others, and all where the kernel has no membarrier, count together.
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
