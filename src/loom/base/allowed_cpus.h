// CPUs that this process may run on: those that a scheduler, a container or a launcher has bound it to, or
// all.
//
// Thread safety: safe from any thread; it speaks of the calling one.
#pragma once

#include <cstdint>

namespace loom {

struct AllowedCpus {
  int count = 1;     // at least 1
  uint64_t set = 0;  // what tells the set apart from others of this machine
};

/// By the calling thread's affinity. std::thread::hardware_concurrency() may count all of the machine.
AllowedCpus allowed_cpus();

}  // namespace loom
