/*
 * Makes a Weft communicator from an MPI one. Header only: the library does not link MPI, so this works with
 * the MPI that the program is compiled against. Only the rendezvous uses MPI.
 */
#ifndef WEFT_WEFT_MPI_H_
#define WEFT_WEFT_MPI_H_

#include <mpi.h>

#include "weft/weft.h"

/* Creates a communicator with the ranks of `mpi`, in the same order. `mpi` is an intracommunicator, and this
 * is a collective over it, between MPI_Init and MPI_Finalize. Thread safety: that with which MPI was
 * initialized. If rank 0 cannot make an id, every rank returns its error. Errors: as weftGetUniqueId and
 * weftCommInitRank; weftSystemError when an MPI call fails. */
static inline weftResult_t weftCommInitMpi(weftComm_t* comm, MPI_Comm mpi) {
  /* One broadcast carries the id and rank 0's result, so that no rank waits after a failure of rank 0. */
  struct {
    weftUniqueId id;
    int result;
  } meeting = {{{0}}, weftSuccess};
  int rank = 0, ranks = 0;

  if (comm == NULL) return weftCommInitRank(NULL, 1, meeting.id, 0); /* words the error */
  *comm = NULL;
  if (MPI_Comm_rank(mpi, &rank) != MPI_SUCCESS || MPI_Comm_size(mpi, &ranks) != MPI_SUCCESS)
    return weftSystemError;
  if (rank == 0) meeting.result = weftGetUniqueId(&meeting.id);
  if (MPI_Bcast(&meeting, (int)sizeof meeting, MPI_BYTE, 0, mpi) != MPI_SUCCESS) return weftSystemError;
  if (meeting.result != weftSuccess) return (weftResult_t)meeting.result;
  return weftCommInitRank(comm, ranks, meeting.id, rank);
}

#endif /* WEFT_WEFT_MPI_H_ */
