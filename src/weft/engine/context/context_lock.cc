#include "engine/context/context_lock.h"

namespace weft::engine {

void ContextMutex::lock_slowly() {
  wanting_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace weft::engine
