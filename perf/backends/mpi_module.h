// The collectives of an MPI library, as a module that the perf tools load for --backend mpi: one for each MPI
// that was found at build time, since a program can have only one in it. The module holds no part of Weft.
//
// Not thread-safe: MPI is initialized for one thread.
#pragma once

#include "perf_common.h"

namespace weft::perf {

/// What the module exports, as `weft_perf_mpi`.
struct MpiModule {
  const char* (*version)();
  /// Initializes MPI, in a process that mpirun or mpiexec started.
  void (*start)(int* rank, int* ranks);
  /// Rank 0's bytes to all.
  void (*broadcast)(void* data, int bytes);
  /// The call that does the collective of that title; null where there is none.
  weftResult_t (*(*find)(const char* title))(const Call& call);
  /// A sentence for the last call that did not return success.
  const char* (*last_error)();
  void (*finish)();
};
inline constexpr const char* kMpiModule = "weft_perf_mpi";

}  // namespace weft::perf
