// Ranks tell each other where they are.
#include "train/threads.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "engine/weft_call.h"

namespace loom::train {

Result<int> ranks_of_machine(weftComm_t comm, uint64_t machine) {
  if (comm == nullptr) return 1;
  int ranks = 0;
  LOOM_TRY_WEFT(weftCommCount(comm, &ranks));
  std::vector<uint64_t> machines(static_cast<size_t>(ranks));
  LOOM_TRY_WEFT(weftAllGather(&machine, machines.data(), 1, weftUint64, comm, nullptr));
  return static_cast<int>(std::count(machines.begin(), machines.end(), machine));
}

int threads_of(const Config& config, int ranks) {
  if (config.parallel.threads > 0) return static_cast<int>(config.parallel.threads);
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cpus / std::max(1, ranks));
}

}  // namespace loom::train
