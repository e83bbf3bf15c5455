/* Loses a rank and goes on with the others. The last rank ends in the middle of the job; the others get an
 * error instead of waiting for ever, make a smaller communicator, and repeat the operation.
 *
 *   cc 03_go_on_without_a_rank.c $(pkg-config --cflags --libs weft) -o go_on
 *   weft_run -n 3 --keep-going ./go_on          # exit code 7: that of the rank that ended
 */
#include <stdio.h>
#include <unistd.h>
#include <weft/weft.h>

int main(void) {
  weftComm_t comm, rest;
  int rank, ranks, mine, sum = 0;
  if (weftCommInitEnv(&comm) != weftSuccess) return 1;
  weftCommUserRank(comm, &rank);
  weftCommCount(comm, &ranks);
  const int lost = ranks - 1;
  if (rank == lost) _exit(7); /* as a crash would: without a goodbye */

  mine = rank + 1;
  weftResult_t result = weftAllReduce(&mine, &sum, 1, weftInt, weftSum, comm, NULL);
  if (result == weftSuccess) return 1;
  printf("rank %d: %s\n", rank, weftGetLastError(comm));

  /* All that stay must name the same ranks. Here they know; a real program asks its scheduler. */
  if (weftCommShrink(comm, &lost, 1, &rest, NULL, WEFT_SHRINK_ABORT) != weftSuccess) {
    fprintf(stderr, "%s\n", weftGetLastError(NULL));
    return 1;
  }
  weftCommDestroy(comm);
  if (weftAllReduce(&mine, &sum, 1, weftInt, weftSum, rest, NULL) != weftSuccess) return 1;
  printf("rank %d: the others have %d\n", rank, sum);
  weftCommDestroy(rest);
  return 0;
}
