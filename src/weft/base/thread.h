// Threads: names and pinning.
#pragma once

#include <string>

namespace weft {

/// Tells the calling thread from all others that live; never null.
inline const void* this_thread() {
#if defined(__x86_64__) || defined(__aarch64__)
  return __builtin_thread_pointer();
#else
  static thread_local const char here = 0;
  return &here;
#endif
}

void name_thread(const std::string& name);
/// Pins the calling thread to the given logical CPU if the process may run there; otherwise leaves it alone.
void pin_thread(int cpu);

}  // namespace weft
