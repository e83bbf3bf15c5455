#include "base/biased_mutex.h"

#include <sched.h>
#include <time.h>

#include "base/membarrier.h"

namespace weft {
namespace {

// Looks at an owner that is inside before the looker sleeps between them.
constexpr int kYields = 100;
constexpr timespec kNap = {0, 50'000};

}  // namespace

void BiasedMutex::lock_slowly() {
  mutex_.lock();
  if (Seat* const seat = bias_.load(std::memory_order_relaxed)) take_bias_away(*seat);
}

bool BiasedMutex::try_slowly() {
  if (!mutex_.try_lock()) return false;
  if (!bias_.load(std::memory_order_relaxed)) return true;
  mutex_.unlock();
  return false;
}

void BiasedMutex::take_bias_away(Seat& seat) {
  bias_.store(nullptr, std::memory_order_seq_cst);
  membarrier();
  for (int looks = 0; seat.taken.load(std::memory_order_acquire); ++looks) {
    if (looks < kYields) sched_yield();
    else nanosleep(&kNap, nullptr);
  }
  row_ = 0;
  if (needed_ < kLongestRow) needed_ *= 2;
}

/// The thread's seat, or one that it gets now; null if all are others'.
BiasedMutex::Seat* BiasedMutex::seat_of(const void* thread) {
  for (Seat& seat : seats_) {
    if (seat.owner == nullptr) seat.owner = thread;
    if (seat.owner == thread) return &seat;
  }
  return nullptr;
}

void BiasedMutex::unlock_slowly() {
  const void* const me = this_thread();
  row_ = last_ == me ? row_ + 1 : 1;
  last_ = me;
  if (row_ >= needed_) {
    if (!kTrustsMembarrier || !has_membarrier()) needed_ = kNever;  // asking is a system call
    else if (Seat* const seat = seat_of(me)) bias_.store(seat, std::memory_order_release);
    else row_ = 0;
  }
  mutex_.unlock();
}

}  // namespace weft
