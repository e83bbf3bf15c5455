/* Weft inside an MPI program: MPI starts the ranks, Weft adds. The library does not link MPI; the header does
 * the rest.
 *
 *   mpicc 04_mpi.c $(pkg-config --cflags --libs weft) -o in_mpi
 *   mpirun -n 2 ./in_mpi
 */
#include <mpi.h>
#include <stdio.h>
#include <weft/weft_mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  weftComm_t comm;
  if (weftCommInitMpi(&comm, MPI_COMM_WORLD) != weftSuccess) {
    fprintf(stderr, "%s\n", weftGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  double mine = rank + 1.0, by_weft = 0, by_mpi = 0;
  if (weftAllReduce(&mine, &by_weft, 1, weftDouble, weftSum, comm, NULL) != weftSuccess) {
    fprintf(stderr, "%s\n", weftGetLastError(comm));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Allreduce(&mine, &by_mpi, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d: Weft %g, MPI %g\n", rank, by_weft, by_mpi);

  weftCommDestroy(comm); /* before MPI_Finalize */
  MPI_Finalize();
  return by_weft == by_mpi ? 0 : 1;
}
