// An MPI library measured as the perf tools measure Weft: the mean time of back-to-back blocking calls, for each size.
// Built by perf/compare.py with each MPI's own compiler wrapper; no part of Weft.
//   mpi_perf COLLECTIVE BYTES ITERATIONS WARMUP     prints "BYTES MICROSECONDS WRONG"
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 5) MPI_Abort(MPI_COMM_WORLD, 2);
  const std::string collective = argv[1];
  const size_t bytes = strtoull(argv[2], nullptr, 10);
  const int iterations = atoi(argv[3]), warmup = atoi(argv[4]);

  // Sizes count as in nccl-tests: the larger of the two buffers.
  const bool all_reduce = collective == "all_reduce", all_gather = collective == "all_gather";
  const int count = static_cast<int>(all_reduce ? bytes / 4 : bytes / 4 / size);
  std::vector<float> send(bytes / 4 + 1, 1.f), recv(bytes / 4 + 1, 0.f);
  auto call = [&] {
    if (all_reduce)
      MPI_Allreduce(send.data(), recv.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (all_gather)
      MPI_Allgather(send.data(), count, MPI_FLOAT, recv.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
    else
      MPI_Reduce_scatter_block(send.data(), recv.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  for (int i = 0; i < warmup; ++i) call();
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) call();
  double us = (MPI_Wtime() - begin) * 1e6 / iterations, sum = 0;
  MPI_Reduce(&us, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  long wrong = 0, total = 0;
  for (int i = 0; i < count; ++i) wrong += recv[i] != (all_gather ? 1.f : static_cast<float>(size));
  MPI_Reduce(&wrong, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%zu %.3f %ld\n", bytes, sum / size, total);
  MPI_Finalize();
  return total != 0;
}
