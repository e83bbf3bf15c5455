// Launch: what the launcher of this process says of it, and how the ranks of a launched job agree on a unique
// id without any code of the program's own. Understood, in this order:
//
// clang-format off
//   weft_run, or by hand   WEFT_RANK, WEFT_WORLD_SIZE, WEFT_ROOT=host:port
//   torchrun               RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; the root listens on MASTER_PORT + 1
//                          (65534 for 65535)
//   MPICH's mpiexec        PMI_RANK, PMI_SIZE, PMI_FD; the id travels through PMI-1. srun --mpi=pmi2 offers the same
//   Open MPI's mpirun      OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE; the id travels through PMIx
//   srun                   SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_STEP_NODELIST; through PMIx
//                          where srun offers it (--mpi=pmix); otherwise the root listens on the first host of the
//                          list (where rank 0 is in every distribution but "arbitrary"), on port
//                          20000 + (64 × job + step) mod 10000
// clang-format on
//
// With none of them the process is a job of one rank. So is a batch script of Slurm, which has SLURM_PROCID
// but belongs to no step. WEFT_ROOT set under another launcher overrides the meeting point; rank 0 must run
// on that host.
//
// Weakness: where the id does not travel (by hand, torchrun, plain srun) the secret is derived from
// WEFT_JOB_SECRET or, without it, from what every user of the cluster may know: address, port, job number.
// The latter is warned about once.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace weft::bootstrap {

enum class IdExchange {
  alone,    // one rank
  derived,  // every rank computes it from root_host, root_port and secret
  pmi,      // rank 0 makes it and puts it into PMI's key-value space
  pmix,     // … PMIx's
};

struct LaunchInfo {
  std::string launcher;  // "weft_run", "torchrun", "mpiexec (MPICH)", "mpirun (Open MPI)", "srun", or "none"
  int rank = 0, size = 1;
  int local_rank = -1, local_size = -1;  // -1: the launcher does not say
  IdExchange exchange = IdExchange::alone;
  std::string root_host;  // of a derived id
  int root_port = 0;
  std::string secret;             // text that the secret is derived from
  bool secret_is_public = false;  // it holds nothing that only the job knows
  int pmi_fd = -1;
};

/// This process's launch. Errors: invalid_setting for an environment that is half set or out of range, naming
/// the variable.
Result<LaunchInfo> detect_launch();
/// The same of an environment of "NAME=value" entries.
Result<LaunchInfo> detect_launch(const std::vector<std::string>& environment);

/// The id for Bootstrap::join(). Every rank of the job calls it, equally often and in the same order; rank 0
/// serves the root from within. Blocks until rank 0 has called it, where the id travels; elsewhere until the
/// name of the root's host is known.
Result<UniqueId> launch_unique_id(const LaunchInfo& launch, Deadline deadline);

/// The first host of a Slurm node list: "node03" of "node[03-05,7],gpu1".
std::string first_host(std::string_view node_list);

}  // namespace weft::bootstrap
