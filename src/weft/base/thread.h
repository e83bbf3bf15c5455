// Threads: their start, names and pinning.
#pragma once

#include <sys/types.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

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

/// Starts a thread of that name, which runs `body()`. Errors: system_error when the process may have no more.
template <typename Body>
Result<std::thread> start_thread(const char* name, Body body) {
  try {
    return std::thread([name, body = std::move(body)]() mutable {
      name_thread(name);
      body();
    });
  } catch (const std::system_error& error) {
    return fail(Code::system_error,
                "cannot start the thread {}: {}; what limits threads may be ulimit -u or the control group's "
                "pids.max",
                name, error.code().message());
  }
}

/// Where a thread may run, by logical CPU; 0 is the calling one. Empty if the kernel does not say.
std::vector<bool> cpus_of(pid_t thread);
/// Pins the calling thread to the given logical CPU if the process may run there; otherwise leaves it alone.
void pin_thread(int cpu);

/// While it lives, the calling thread stays on one CPU: the one in place `place` of those that it may use, if
/// these are `of`. Otherwise, and for a negative place, nothing changes. To be destroyed by the same thread.
class KeptOnCpu {
 public:
  KeptOnCpu(int place, int of);
  ~KeptOnCpu();
  KeptOnCpu(const KeptOnCpu&) = delete;
  KeptOnCpu& operator=(const KeptOnCpu&) = delete;

 private:
  std::vector<bool> before_;  // where the thread could run; empty: it was left alone
};

}  // namespace weft
