/* Adds four numbers of every rank. Any launcher that Weft knows starts it; without one it is a job of one
 * rank.
 *
 *   cc 01_all_reduce.c $(pkg-config --cflags --libs weft) -o all_reduce
 *   weft_run -n 4 --nodes 2 ./all_reduce
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

static void check(weftResult_t result) {
  if (result == weftSuccess) return;
  fprintf(stderr, "%s\n", weftGetLastError(NULL));
  exit(1);
}

int main(void) {
  weftComm_t comm;
  int rank, ranks;
  check(weftCommInitEnv(&comm));
  check(weftCommUserRank(comm, &rank));
  check(weftCommCount(comm, &ranks));

  float mine[4], sum[4];
  for (int i = 0; i < 4; ++i) mine[i] = (float)(rank + i);
  check(weftAllReduce(mine, sum, 4, weftFloat, weftSum, comm, NULL));
  printf("rank %d of %d: %g %g %g %g\n", rank, ranks, sum[0], sum[1], sum[2], sum[3]);

  check(weftCommDestroy(comm));
  return 0;
}
