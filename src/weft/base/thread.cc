// Names and pinning, with Linux' calls. Neither is needed for a right result, so neither reports failure.
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace weft {
/// As many CPUs as the kernel's own masks have room for, since it refuses shorter ones and does not tell.
struct CpuMask {
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set;  // null: there was no memory
  int cpus = 0;                          // that there is room for

  CpuMask() = default;
  explicit CpuMask(int room) : set(CPU_ALLOC(room)), cpus(set == nullptr ? 0 : room) {}

  size_t bytes() const { return CPU_ALLOC_SIZE(cpus); }
  bool has(int cpu) const { return cpu >= 0 && cpu < cpus && CPU_ISSET_S(cpu, bytes(), set.get()) != 0; }
  int count() const { return CPU_COUNT_S(bytes(), set.get()); }
  /// The calling thread may run on these, and no others, from now on.
  void apply() const { sched_setaffinity(0, bytes(), set.get()); }
  /// Only `cpu`.
  CpuMask only(int cpu) const {
    CpuMask mask(cpus);
    if (mask.set == nullptr) return mask;
    CPU_ZERO_S(bytes(), mask.set.get());
    CPU_SET_S(cpu, bytes(), mask.set.get());
    return mask;
  }
};

namespace {

/// Where the calling thread may run; an empty one if the kernel does not say.
CpuMask own_mask() {
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    CpuMask mask(cpus);
    if (mask.set == nullptr) break;
    if (sched_getaffinity(0, mask.bytes(), mask.set.get()) == 0) return mask;
    if (errno != EINVAL) break;
  }
  return {};
}

void pin_to(const CpuMask& allowed, int cpu) {
  if (!allowed.has(cpu)) return;
  if (const CpuMask one = allowed.only(cpu); one.set != nullptr) one.apply();
}

}  // namespace

void name_thread(const std::string& name) {
  // The kernel keeps 15 characters and refuses longer names.
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

void pin_thread(int cpu) { pin_to(own_mask(), cpu); }

KeptOnCpu::KeptOnCpu(int place, int of) {
  CpuMask mask = own_mask();
  if (place < 0 || place >= of || mask.cpus == 0 || mask.count() != of) return;
  int cpu = 0;
  for (int before = place; !mask.has(cpu) || before-- > 0;) ++cpu;
  pin_to(mask, cpu);
  before_ = std::make_unique<CpuMask>(std::move(mask));
}

KeptOnCpu::~KeptOnCpu() {
  if (before_ != nullptr) before_->apply();
}

}  // namespace weft
