/* A user's first program: the sum over all ranks. */
#include <stdio.h>
#include <weft/weft.h>

int main(void) {
  weftComm_t comm;
  int rank, ranks;
  float mine, sum = 0;

  if (weftCommInitEnv(&comm) != weftSuccess) {
    fprintf(stderr, "%s\n", weftGetLastError(NULL));
    return 1;
  }
  weftCommUserRank(comm, &rank);
  weftCommCount(comm, &ranks);
  mine = (float)(rank + 1);
  if (weftAllReduce(&mine, &sum, 1, weftFloat, weftSum, comm, NULL) != weftSuccess) {
    fprintf(stderr, "%s\n", weftGetLastError(comm));
    return 1;
  }
  printf("rank %d of %d: the sum is %g\n", rank, ranks, sum);
  if (weftCommDestroy(comm) != weftSuccess) return 1;
  return sum == (float)(ranks * (ranks + 1) / 2) ? 0 : 1;
}
