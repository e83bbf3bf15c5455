// Ranks tell each other where they are.
#include "train/threads.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "engine/weft_call.h"

namespace loom::train {

namespace {

/// Of each rank.
Result<std::vector<uint64_t>> machines_of(weftComm_t comm, uint64_t machine) {
  int ranks = 0;
  LOOM_TRY_WEFT(weftCommCount(comm, &ranks));
  std::vector<uint64_t> machines(static_cast<size_t>(ranks));
  LOOM_TRY_WEFT(weftAllGather(&machine, machines.data(), 1, weftUint64, comm, nullptr));
  return machines;
}

}  // namespace

Result<int> ranks_of_machine(weftComm_t comm, uint64_t machine) {
  if (comm == nullptr) return 1;
  const Result<std::vector<uint64_t>> machines = machines_of(comm, machine);
  LOOM_TRY(machines.status());
  return static_cast<int>(std::count(machines->begin(), machines->end(), machine));
}

Result<int> local_rank(weftComm_t comm, uint64_t machine) {
  if (comm == nullptr) return 0;
  const Result<std::vector<uint64_t>> machines = machines_of(comm, machine);
  LOOM_TRY(machines.status());
  int rank = 0;
  LOOM_TRY_WEFT(weftCommUserRank(comm, &rank));
  return static_cast<int>(std::count(machines->begin(), machines->begin() + rank, machine));
}

Result<Sharers> find_sharers(weftComm_t comm, const GroupLimit& quota, const AllowedCpus& cpus) {
  const Result<int> of_machine = ranks_of_machine(comm);
  LOOM_TRY(of_machine.status());
  // A group's number, and a set of CPUs, tell it apart from others of its machine only.
  const auto ranks_with = [&](uint64_t of_this_machine) {
    Hash64 hash;
    hash.add(machine_id());
    hash.add(of_this_machine);
    return ranks_of_machine(comm, hash.value());
  };
  const Result<int> of_quota = ranks_with(quota.limited ? quota.group : 0);
  LOOM_TRY(of_quota.status());
  const Result<int> of_cpus = ranks_with(cpus.set);
  LOOM_TRY(of_cpus.status());
  return Sharers{*of_machine, *of_quota, *of_cpus};
}

int threads_of(const Config& config, const Sharers& sharers, const GroupLimit& quota,
               const AllowedCpus& cpus) {
  if (config.parallel.threads > 0) return static_cast<int>(config.parallel.threads);
  const double all = std::thread::hardware_concurrency(), allowed = cpus.count;
  double share = std::min(all / std::max(1, sharers.of_machine), allowed / std::max(1, sharers.of_cpus));
  if (quota.limited) share = std::min(share, quota.amount / std::max(1, sharers.of_quota));
  return std::max(1, static_cast<int>(share));
}

}  // namespace loom::train
