// Training under other launchers than our own: torchrun's and srun's environments, faked, the first on nodes
// that take turns; Open MPI's mpirun, where it is installed. PyTorch's own torchrun is a test of
// loom.interop.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "command/launched.h"

namespace loom::testing {
namespace {

/// A port that the kernel gives to nobody else meanwhile, but on which a root may listen: bound, and not
/// listened on.
class Port {
 public:
  /// Any.
  Port() : Port(0) {
    if (number_ == 0) std::abort();
  }
  /// number() is 0 where that one is taken.
  explicit Port(int wanted) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(wanted));
    socklen_t bytes = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    if (::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(socket_, raw, bytes) != 0 || ::getsockname(socket_, raw, &bytes) != 0)
      return;
    number_ = ntohs(address.sin_port);
  }
  Port(const Port&) = delete;
  ~Port() { ::close(socket_); }
  int number() const { return number_; }

 private:
  int socket_, number_ = 0;
};

bool installed(const std::string& program) { return shell("command -v " + program).code == 0; }

TEST_F(Launched, UnderATorchrunWhoseRanksTakeTurnsOnTwoNodes) {
  const Port port;  // the root's, one above torchrun's own
  const Outcome trained = shell(fmt::format(
      "pids=; for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r / 2)) LOCAL_WORLD_SIZE=2 "
      "MASTER_ADDR=localhost MASTER_PORT={} WEFT_HOSTID=node$((r % 2)) WEFT_LOG=error timeout 60 {} & "
      "pids=\"$pids $!\"; done; for p in $pids; do wait $p || exit 1; done",
      port.number() - 1, train(two_)));
  expect_trained(trained, "4 ranks on 2 nodes, sharded over 2;");
}

/// A step of 4 tasks on a node, of an allocation that has room for 8. The port follows from the numbers of
/// the job and of the step (the README): a job whose port is free.
TEST_F(Launched, UnderASrunStep) {
  constexpr int kStep = 3;
  int job = ::getpid();
  const auto port_of = [](int number) {
    return 20000 + static_cast<int>((int64_t{64} * number + kStep) % 10000);
  };
  std::optional<Port> port;
  for (port.emplace(port_of(job)); port->number() == 0; port.emplace(port_of(job))) ++job;
  const Outcome trained = shell(fmt::format(
      "pids=; for r in 0 1 2 3; do SLURM_PROCID=$r SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=$r "
      "SLURM_JOB_ID={} SLURM_STEP_ID={} SLURM_STEP_NODELIST=localhost WEFT_JOB_SECRET=x timeout 60 {} & "
      "pids=\"$pids $!\"; done; for p in $pids; do wait $p || exit 1; done",
      job, kStep, train(two_)));
  expect_trained(trained, "4 ranks on 1 node, sharded over 2;");
}

TEST_F(Launched, UnderOpenMpisMpirun) {
  if (!installed("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  const Outcome trained = shell(
      "ASAN_OPTIONS=detect_leaks=0 timeout 60 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 " +
      train(two_));
  if (trained.text.find("built without its headers") != std::string::npos)
    GTEST_SKIP() << "built without PMIx's headers";
  expect_trained(trained, "2 ranks on 1 node, sharded over 2;");
}

}  // namespace
}  // namespace loom::testing
