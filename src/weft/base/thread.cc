// Names and pinning, with Linux' calls. Neither is needed for a right result, so neither reports failure.
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <memory>

namespace weft {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

}  // namespace

void name_thread(const std::string& name) {
  // The kernel keeps 15 characters and refuses longer names.
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

void pin_thread(int cpu) {
  if (cpu < 0) return;
  // The kernel refuses masks shorter than its own, whose length it does not tell.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    const CpuSet set(CPU_ALLOC(cpus));
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (set == nullptr) return;
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      return;
    }
    if (cpu >= cpus || !CPU_ISSET_S(cpu, bytes, set.get())) return;
    CPU_ZERO_S(bytes, set.get());
    CPU_SET_S(cpu, bytes, set.get());
    sched_setaffinity(0, bytes, set.get());
    return;
  }
}

}  // namespace weft
