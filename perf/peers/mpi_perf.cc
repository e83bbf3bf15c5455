// An MPI library, measured as the perf tools measure Weft (see sweep.h). Built with the library's own
// compiler wrapper.
#include <mpi.h>
#include <unistd.h>

#include <csignal>

#include "sweep.h"

namespace {

constexpr unsigned kFinalizeSeconds = 3;
volatile sig_atomic_t exit_code = 0;

std::vector<peers::Way> ways(const std::string& collective, const peers::Buffers& b, int rank) {
  const int count = static_cast<int>(b.count);
  const auto way = [&](std::function<void()> run, bool in_place = false) {
    return std::vector<peers::Way>{{"", std::move(run), in_place}};
  };
  if (collective == "all_reduce")
    return way([=] { MPI_Allreduce(b.send, b.recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
  if (collective == "all_gather")
    return way([=] { MPI_Allgather(b.send, count, MPI_FLOAT, b.recv, count, MPI_FLOAT, MPI_COMM_WORLD); });
  if (collective == "reduce_scatter")
    return way([=] { MPI_Reduce_scatter_block(b.send, b.recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
  if (collective == "alltoall")
    return way([=] { MPI_Alltoall(b.send, count, MPI_FLOAT, b.recv, count, MPI_FLOAT, MPI_COMM_WORLD); });
  if (collective == "broadcast")  // MPI broadcasts in place only
    return way([=] { MPI_Bcast(b.recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }, true);
  if (rank == 0) std::fprintf(stderr, "no collective is called %s\n", collective.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  peers::Arguments arguments;
  if (!peers::parse(argc, argv, arguments)) return 2;
  const double begin = peers::now_us();
  MPI_Init(&argc, &argv);
  const double startup_us = peers::now_us() - begin;
  peers::Peer self;
  MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
  self.barrier = [] { MPI_Barrier(MPI_COMM_WORLD); };
  self.sum = [](double mine) {
    double sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
  };
  peers::Sweep sweep(self, arguments, startup_us);
  const long wrong = sweep.run(
      [&](const std::string& collective, const peers::Buffers& b) { return ways(collective, b, self.rank); });
  MPI_Barrier(MPI_COMM_WORLD);
  // MPICH with several ranks on each of several nodes may not come back from MPI_Finalize.
  exit_code = wrong != 0;
  std::signal(SIGALRM, [](int) { std::_Exit(exit_code); });
  alarm(kFinalizeSeconds);
  MPI_Finalize();
  return exit_code;
}
