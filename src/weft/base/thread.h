// Threads: names and pinning.
#pragma once

#include <memory>
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

struct CpuMask;

/// While it lives, the calling thread stays on one CPU: the one in place `place` of those that it may use, if
/// these are `of`. Otherwise, and for a negative place, nothing changes. To be destroyed by the same thread.
class KeptOnCpu {
 public:
  KeptOnCpu(int place, int of);
  ~KeptOnCpu();
  KeptOnCpu(const KeptOnCpu&) = delete;
  KeptOnCpu& operator=(const KeptOnCpu&) = delete;

 private:
  std::unique_ptr<CpuMask> before_;  // where the thread could run; null: it was left alone
};

}  // namespace weft
