#include "base/gate.h"

#include <algorithm>
#include <thread>

#include "base/membarrier.h"

namespace weft {
Gate::Seat* Gate::enter_slowly() {
  for (Seat& seat : seats_) {
    if (seat.owner.load(std::memory_order_relaxed)) continue;
    if (!kTrustsMembarrier || !has_membarrier()) break;
    const void* nobody = nullptr;
    if (seat.owner.compare_exchange_strong(nobody, this_thread())) return enter(seat);
  }
  others_.fetch_add(1);
  return nullptr;
}

bool Gate::anybody_inside() const {
  return others_.load() > 0 || std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) {
           return seat.inside.load(std::memory_order_acquire) > 0;
         });
}

void Gate::drain() {
  if (kTrustsMembarrier && has_membarrier()) membarrier();
  while (anybody_inside()) std::this_thread::yield();
}

}  // namespace weft
