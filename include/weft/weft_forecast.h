/*
 * Predicts the time of a collective on a described cluster: the simulator of weft_sim as a function. It needs
 * no communicator, and sends nothing.
 */
#ifndef WEFT_WEFT_FORECAST_H_
#define WEFT_WEFT_FORECAST_H_

#include "weft/weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Simulates one call, alone, by the plan that Weft's tuner prefers. Sets *microseconds to its time.
 *
 * cluster       the text of a description of a cluster, JSON (docs/reference/file-formats.md). Its numbers of
 *               nodes and ranks are not used.
 * collective    "allgather", "reducescatter", "allreduce", "alltoall", "broadcast" or "reduce"
 * bytes         size of the larger of a rank's input and output, as the perf tools print it: for AllGather
 * and ReduceScatter that of all ranks together nodes         number of nodes of the communicator, with
 * ranksPerNode ranks each interfaces    share of every node's interfaces that the communicator has, above 0
 * and at most 1: 0.125 if eight communicators share a node
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
