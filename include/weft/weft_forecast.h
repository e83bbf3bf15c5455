/*
 * How long a collective of Weft takes on a cluster that is described and need not be there: the simulator of
 * weft_sim as a function. Nothing communicates, and no communicator is needed.
 */
#ifndef WEFT_WEFT_FORECAST_H_
#define WEFT_WEFT_FORECAST_H_

#include "weft/weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Simulates one call, alone, of the plan that Weft's tuner prefers, and returns its time in `microseconds`.
 *
 * cluster       the text of a description of a cluster, JSON (docs/reference/file-formats.md). Its numbers of
 *               nodes and ranks are not used.
 * collective    "allgather", "reducescatter", "allreduce", "alltoall", "broadcast" or "reduce"
 * bytes         of the larger of a rank's input and output, as the perf tools print sizes: of AllGather and
 *               ReduceScatter those of all ranks together
 * nodes         that the communicator's ranks lie on, ranksPerNode on each
 * interfaces    the part, above 0 and at most 1, of every node's interfaces that the communicator has: 0.125
 *               if eight of them share a node
 *
 * A size that the ranks cannot share equally is rounded up. Thread safety: any thread.
 * Errors: weftInvalidArgument, with the argument or the description's key in weftGetLastError(NULL). */
WEFT_API weftResult_t weftForecastCollective(const char* cluster, const char* collective, size_t bytes,
                                             int nodes, int ranksPerNode, double interfaces,
                                             double* microseconds);

#ifdef __cplusplus
}
#endif

#endif /* WEFT_WEFT_FORECAST_H_ */
