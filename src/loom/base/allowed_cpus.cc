#include "base/allowed_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <thread>
#include <vector>

#include "base/hash.h"

namespace loom {

AllowedCpus allowed_cpus() {
  // The kernel refuses masks shorter than its own, whose length it does not tell.
  constexpr size_t kMostBytes = size_t{1} << 20;
  for (size_t bytes = sizeof(cpu_set_t); bytes <= kMostBytes; bytes *= 2) {
    std::vector<cpu_set_t> mask(bytes / sizeof(cpu_set_t));
    if (::sched_getaffinity(0, bytes, mask.data()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    Hash64 hash;
    hash.add(std::as_bytes(std::span(mask)));
    return {std::max(1, CPU_COUNT_S(bytes, mask.data())), hash.value()};
  }
  return {static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)), 0};
}

}  // namespace loom
