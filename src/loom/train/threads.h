// Threads of a rank: what its machine has for it. A machine may pretend to be several nodes; its ranks share
// its CPUs all the same.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include "base/allowed_cpus.h"
#include "base/control_group.h"
#include "base/machine_id.h"
#include "base/status.h"
#include "train/config.h"

namespace loom::train {

/// How many ranks of `comm` have the same `machine` as this one, itself included. A collective; nullptr is
/// one rank. Errors: communication_error.
Result<int> ranks_of_machine(weftComm_t comm, uint64_t machine = machine_id());
/// How many of them have a lower number than this one: its number on the machine. As above.
Result<int> local_rank(weftComm_t comm, uint64_t machine = machine_id());

/// Ranks that share what this one computes with, itself included.
struct Sharers {
  int of_machine = 1;
  int of_quota = 1;  // that have the control group's CPU time in common with it, where that is limited
  int of_cpus = 1;   // that may run on the same CPUs
};
/// A collective; nullptr is one rank. Errors: communication_error.
Result<Sharers> find_sharers(weftComm_t comm, const GroupLimit& quota = cpu_limit(),
                             const AllowedCpus& cpus = allowed_cpus());

/// What the config says; or the CPUs that this rank may run on over the ranks that share them. No more than
/// the machine's CPUs over its ranks, and than the control group's time is enough for, shared as well, a part
/// of a CPU left out; at least 1.
int threads_of(const Config& config, const Sharers& sharers, const GroupLimit& quota = cpu_limit(),
               const AllowedCpus& cpus = allowed_cpus());

}  // namespace loom::train
