// Names and pinning, with Linux' calls. Neither is needed for a right result, so neither reports failure.
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

namespace weft {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

/// The calling thread may run on these, and no others, from now on.
void run_on(const std::vector<bool>& cpus) {
  const CpuSet set(CPU_ALLOC(cpus.size()));
  const size_t bytes = CPU_ALLOC_SIZE(cpus.size());
  if (set == nullptr) return;
  CPU_ZERO_S(bytes, set.get());
  for (size_t cpu = 0; cpu < cpus.size(); ++cpu)
    if (cpus[cpu]) CPU_SET_S(cpu, bytes, set.get());
  sched_setaffinity(0, bytes, set.get());
}

void run_on_one(size_t cpu) {
  std::vector<bool> one(cpu + 1);
  one[cpu] = true;
  run_on(one);
}

}  // namespace

std::vector<bool> cpus_of(pid_t thread) {
  // The kernel refuses masks shorter than its own, whose length it does not tell.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    const CpuSet set(CPU_ALLOC(cpus));
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (set == nullptr) break;
    if (sched_getaffinity(thread, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<bool> mask(static_cast<size_t>(cpus));
    for (int cpu = 0; cpu < cpus; ++cpu)
      mask[static_cast<size_t>(cpu)] = CPU_ISSET_S(cpu, bytes, set.get()) != 0;
    return mask;
  }
  return {};
}

void name_thread(const std::string& name) {
  // The kernel keeps 15 characters and refuses longer names.
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

void pin_thread(int cpu) {
  const std::vector<bool> allowed = cpus_of(0);
  const auto number = static_cast<size_t>(cpu);  // no CPU's where it is negative
  if (number < allowed.size() && allowed[number]) run_on_one(number);
}

KeptOnCpu::KeptOnCpu(int place, int of) {
  if (place < 0 || place >= of) return;
  std::vector<bool> allowed = cpus_of(0);
  if (std::count(allowed.begin(), allowed.end(), true) != of) return;
  size_t cpu = 0;
  for (int before = place; !allowed[cpu] || before-- > 0;) ++cpu;
  run_on_one(cpu);
  before_ = std::move(allowed);
}

KeptOnCpu::~KeptOnCpu() {
  if (!before_.empty()) run_on(before_);
}

}  // namespace weft
