// Launchers: their environments, faked; and real ones, under which this program runs itself again as
// LaunchedRank.Joins.
#include "bootstrap/launch.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "bootstrap/id_exchange.h"
#include "bootstrap/ranks.h"
#include "bootstrap/reserved_port.h"

namespace weft::bootstrap {
namespace {

LaunchInfo detected(const std::vector<std::string>& environment) {
  Result<LaunchInfo> info = detect_launch(environment);
  EXPECT_TRUE(info.ok()) << info.status().message();
  return info.ok() ? *info : LaunchInfo{};
}

void expect_refused(const std::vector<std::string>& environment, const std::string& part) {
  const Status status = detect_launch(environment).status();
  EXPECT_EQ(status.code(), Code::invalid_setting);
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(Launch, AloneWithoutALauncher) {
  const LaunchInfo info = detected({"HOME=/", "PATH=/bin"});
  EXPECT_EQ(info.launcher, "none");
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.size, 1);
  EXPECT_EQ(info.exchange, IdExchange::alone);
}

TEST(Launch, OurOwnVariables) {
  const LaunchInfo info =
      detected({"WEFT_RANK=3", "WEFT_WORLD_SIZE=8", "WEFT_LOCAL_RANK=1", "WEFT_LOCAL_SIZE=2",
                "WEFT_ROOT=[::1]:4711", "WEFT_JOB_SECRET=sesame", "RANK=1", "WORLD_SIZE=2"});
  EXPECT_EQ(info.launcher, "weft_run");
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 2);
  EXPECT_EQ(info.root_host, "::1");
  EXPECT_EQ(info.root_port, 4711);
  EXPECT_FALSE(info.secret_is_public);
  EXPECT_TRUE(detected({"WEFT_RANK=0", "WEFT_WORLD_SIZE=2", "WEFT_ROOT=a:1"}).secret_is_public);
  EXPECT_EQ(detected({"WEFT_RANK=0", "WEFT_WORLD_SIZE=1"}).exchange, IdExchange::alone);
}

TEST(Launch, Torchrun) {
  const LaunchInfo info =
      detected({"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node7",
                "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=x", "SLURM_PROCID=0"});
  EXPECT_EQ(info.launcher, "torchrun");
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.size, 4);
  EXPECT_EQ(info.local_size, 2);
  EXPECT_EQ(info.root_host, "node7");
  EXPECT_EQ(info.root_port, 29501);
}

TEST(Launch, Slurm) {
  const std::vector<std::string> environment = {"SLURM_PROCID=5",
                                                "SLURM_NTASKS=16",
                                                "SLURM_STEP_NUM_TASKS=8",
                                                "SLURM_LOCALID=1",
                                                "SLURM_JOB_ID=1234",
                                                "SLURM_STEP_ID=2",
                                                "SLURM_STEP_NODELIST=gpu[07-09,12],login1",
                                                "MASTER_ADDR=x",
                                                "WORLD_SIZE=8"};
  const LaunchInfo info = detected(environment);
  EXPECT_EQ(info.launcher, "srun");
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.root_host, "gpu07");
  EXPECT_EQ(info.root_port, 20000 + (64 * 1234 + 2) % 10000);
  auto other_step = environment;
  other_step[5] = "SLURM_STEP_ID=3";
  EXPECT_NE(detected(other_step).secret, info.secret);
  auto with_root = environment;
  with_root.push_back("WEFT_ROOT=gpu08:99");
  EXPECT_EQ(detected(with_root).root_host, "gpu08");
  auto with_pmix = environment;
  with_pmix.push_back("PMIX_NAMESPACE=slurm.pmix.1");
  EXPECT_EQ(detected(with_pmix).exchange, IdExchange::pmix);
}

// It was taken for a task of a step, and refused for what steps have.
TEST(Launch, ABatchScriptOfSlurmIsOneRank) {
  const LaunchInfo info = detected({"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_NPROCS=4", "SLURM_LOCALID=0",
                                    "SLURM_JOB_ID=7", "SLURM_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2(x2)"});
  EXPECT_EQ(info.launcher, "none");
  EXPECT_EQ(info.size, 1);
  EXPECT_EQ(info.exchange, IdExchange::alone);
}

TEST(Launch, ASrunWhoseNodesHaveNoAddressSaysWhatNeedsNone) {
  const LaunchInfo info = detected({"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0",
                                    "SLURM_STEP_NODELIST=no-such-node.invalid"});
  const Status status = launch_unique_id(info, Deadline::in_seconds(0.3)).status();
  EXPECT_NE(status.message().find("no-such-node.invalid"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("srun --mpi=pmix or --mpi=pmi2 needs no names, or set WEFT_ROOT=host:port"),
            std::string::npos)
      << status.message();
}

// Names of pods come up with the pods: ranks that started before the first one failed at once.
TEST(Launch, ANameThatIsNotKnownYetIsWaitedFor) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    // A list of hosts of this process's own.
    char list[] = "/tmp/weft-hosts-XXXXXX";
    const UniqueFd file(mkstemp(list));
    const bool own = file.valid() && unshare(CLONE_NEWNS) == 0 &&
                     mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                     mount(list, "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
    unlink(list);
    if (!own) _exit(77);
    std::thread pod([&file] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      [[maybe_unused]] const auto written = ::write(file.get(), "127.0.0.1 first-pod.invalid\n", 28);
    });
    const Result<UniqueId> id = launch_unique_id(
        detected({"WEFT_RANK=1", "WEFT_WORLD_SIZE=2", "WEFT_ROOT=first-pod.invalid:4711"}), soon());
    if (!id.ok()) std::fprintf(stderr, "%s\n", std::string(id.status().message()).c_str());
    pod.join();
    _exit(id.ok() ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "a mount namespace needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Launch, MpiLaunchers) {
  const LaunchInfo mpich =
      detected({"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=6", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"});
  EXPECT_EQ(mpich.exchange, IdExchange::pmi);
  EXPECT_EQ(mpich.pmi_fd, 6);
  EXPECT_EQ(mpich.local_rank, 1);
  const LaunchInfo open_mpi =
      detected({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "SLURM_PROCID=0"});
  EXPECT_EQ(open_mpi.exchange, IdExchange::pmix);
  EXPECT_EQ(open_mpi.rank, 1);
}

TEST(Launch, AHalfSetEnvironmentNamesWhatIsMissing) {
  expect_refused({"WEFT_RANK=0"}, "WEFT_WORLD_SIZE is missing");
  expect_refused({"WEFT_WORLD_SIZE=2"}, "WEFT_RANK is missing");
  expect_refused({"WEFT_RANK=0", "WEFT_WORLD_SIZE=2"}, "WEFT_ROOT is missing");
  expect_refused({"RANK=0"}, "WORLD_SIZE is missing");
  expect_refused({"WORLD_SIZE=2"}, "RANK is missing");
  expect_refused({"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=1"}, "MASTER_ADDR is missing");
  expect_refused({"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=x"}, "MASTER_PORT is missing");
  expect_refused({"PMI_RANK=0"}, "PMI_SIZE is missing");
  expect_refused({"PMI_SIZE=2"}, "PMI_RANK is missing");
  expect_refused({"PMI_RANK=0", "PMI_SIZE=2"}, "PMI_FD is missing");
  expect_refused({"OMPI_COMM_WORLD_RANK=0"}, "OMPI_COMM_WORLD_SIZE is missing");
  expect_refused({"SLURM_PROCID=0", "SLURM_STEP_ID=0"}, "SLURM_NTASKS is missing");
  expect_refused({"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_NTASKS=2"}, "SLURM_STEP_NODELIST is missing");
}

TEST(Launch, WrongValuesAreNamedWithTheRange) {
  expect_refused({"WEFT_RANK=2", "WEFT_WORLD_SIZE=2"}, "WEFT_RANK is 2, must be less than");
  expect_refused({"RANK=2", "WORLD_SIZE=2"}, "RANK is '2', must be an integer from 0 to 1");
  expect_refused({"RANK=one", "WORLD_SIZE=2"}, "RANK is 'one'");
  expect_refused({"RANK=0", "WORLD_SIZE=0"}, "WORLD_SIZE is '0'");
  for (const std::string root : {"host", "host:", ":5", "host:0", "host:65536", "host:5x"}) {
    expect_refused({"WEFT_RANK=0", "WEFT_WORLD_SIZE=2", "WEFT_ROOT=" + root}, "must be host:port");
  }
}

TEST(Launch, FirstHostOfSlurmsLists) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[03-05,7],gpu1"), "node03");
  EXPECT_EQ(first_host("node[7]"), "node7");
  EXPECT_EQ(first_host("r[1-2]n[10,12-15]"), "r1n10");
  EXPECT_EQ(first_host("a[3,5]-ib"), "a3-ib");
  EXPECT_EQ(first_host(""), "");
}

TEST(IdText, IsReadBackAndDamageIsNamed) {
  const UniqueId id = *unique_id_for("127.0.0.1", 4711, "text");
  const std::string text = id_to_text(id);
  EXPECT_EQ(text.size(), 256u);
  ASSERT_TRUE(id_from_text(text).ok());
  EXPECT_EQ(id_from_text(text)->bytes, id.bytes);
  EXPECT_EQ(id_from_text(text.substr(1)).status().code(), Code::invalid_unique_id);
  EXPECT_EQ(id_from_text("xy" + text.substr(2)).status().code(), Code::invalid_unique_id);
  EXPECT_EQ(id_from_text("00" + text.substr(2)).status().code(), Code::invalid_unique_id);
}

TEST(Launch, ByHandWithoutASecret) {
  const ReservedPort port;
  const std::string root = fmt::format("127.0.0.1:{}", port.number());
  on_each_rank(3, [&](int rank) {
    const LaunchInfo info =
        detected({fmt::format("WEFT_RANK={}", rank), "WEFT_WORLD_SIZE=3", "WEFT_ROOT=" + root});
    Result<UniqueId> id = launch_unique_id(info, soon());
    ASSERT_TRUE(id.ok()) << id.status().message();
    const Joined joined = Bootstrap::join(*id, info.rank, info.size, soon());
    EXPECT_TRUE(joined.ok()) << joined.status().message();
  });
}

TEST(Launch, AnAddressThatIsNoneOfRank0sHostIsNamedAtOnce) {
  EXPECT_TRUE(is_of_this_host(*SocketAddress::parse("127.0.0.1:4711")));
  EXPECT_FALSE(is_of_this_host(*SocketAddress::parse("192.0.2.1:4711"))) << "an address for documents only";
  const ReservedPort port;
  const std::string root = fmt::format("192.0.2.1:{}", port.number());
  const auto said = [&](int rank) {
    testing::internal::CaptureStderr();
    const Result<UniqueId> id =
        launch_unique_id(detected({fmt::format("WEFT_RANK={}", rank), "WEFT_WORLD_SIZE=2",
                                   "WEFT_ROOT=" + root, "WEFT_JOB_SECRET=of this test"}),
                         soon());
    EXPECT_TRUE(id.ok()) << id.status().message();
    return testing::internal::GetCapturedStderr();
  };
  const std::string words = "192.0.2.1 (" + root + ") is no address of this host, where rank 0 runs";
  EXPECT_EQ(said(1), "");
  EXPECT_NE(said(0).find(words), std::string::npos);
}

/// Answers one process of a job of one, as a launcher that speaks PMI does, until it closes the connection.
/// Returns how often it has taken its leave.
int serve_pmi(const UniqueFd& connection) {
  std::string value, line;
  int leaves = 0;
  for (char c; ::read(connection.get(), &c, 1) == 1;) {
    if (c != '\n') {
      line += c;
      continue;
    }
    const auto is = [&](std::string_view command) { return line.find(command) != std::string::npos; };
    if (is("cmd=put")) value = line.substr(line.find(" value=") + 7);
    leaves += is("cmd=finalize");
    const std::string answer = is("cmd=init")           ? "cmd=response_to_init rc=0"
                               : is("cmd=get_my_kvs")   ? "cmd=my_kvsname kvsname=space"
                               : is("cmd=put")          ? "cmd=put_result rc=0"
                               : is("cmd=barrier_in")   ? "cmd=barrier_out rc=0"
                               : is("cmd=get kvsname=") ? "cmd=get_result rc=0 value=" + value
                                                        : "cmd=finalize_ack";
    line.clear();
    [[maybe_unused]] const auto written =
        ::write(connection.get(), (answer + "\n").data(), answer.size() + 1);
  }
  return leaves;
}

// The launcher took the rank for one that had ended.
TEST(Launch, AForkedChildThatEndsDoesNotTakeItsParentsLeaveOfPmi) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  UniqueFd launcher(ends[0]), of_rank(ends[1]);
  std::fflush(nullptr);
  const pid_t rank = fork();
  if (rank == 0) {
    launcher.reset();
    const bool met = exchange_over_pmi(of_rank.get(), 0, soon()).ok();
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    waitpid(child, nullptr, 0);
    std::exit(met ? 0 : 1);
  }
  of_rank.reset();
  EXPECT_EQ(serve_pmi(launcher), 1);
  int status = 1;
  waitpid(rank, &status, 0);
  EXPECT_EQ(status, 0);
}

// ---- Real processes

/// What a program of a user does. Run by hand or by ctest it is a job of one rank.
TEST(LaunchedRank, Joins) {
  Result<LaunchInfo> info = detect_launch();
  ASSERT_TRUE(info.ok()) << info.status().message();
  const char* const size = std::getenv("LAUNCHED_SIZE");
  const char* const launcher = std::getenv("LAUNCHED_BY");
  EXPECT_EQ(std::to_string(info->size), size != nullptr ? size : "1");
  EXPECT_EQ(info->launcher, launcher != nullptr ? launcher : "none");
  for (int round = 0; round < 2; ++round) {  // a second communicator from the same launch
    Result<UniqueId> id = launch_unique_id(*info, soon());
    ASSERT_TRUE(id.ok()) << id.status().message();
    Joined joined = Bootstrap::join(*id, info->rank, info->size, soon());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    const auto mine = static_cast<std::byte>(info->rank);
    Result<std::vector<std::byte>> all = (*joined)->all_gather(std::span(&mine, 1), soon());
    ASSERT_TRUE(all.ok()) << all.status().message();
    for (int rank = 0; rank < info->size; ++rank)
      EXPECT_EQ((*all)[static_cast<size_t>(rank)], static_cast<std::byte>(rank));
  }
}

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
const std::string kSelf = "--gtest_filter=LaunchedRank.Joins --gtest_color=no";

/// Runs a shell command, with its output shown if it fails.
void expect_success(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char piece[512];
  while (size_t got = fread(piece, 1, sizeof piece, pipe)) output.append(piece, got);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << output;
}

bool installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

TEST(Launch, UnderMpichsMpiexec) {
  if (!installed("mpiexec.hydra")) GTEST_SKIP() << "mpiexec.hydra is not installed";
  expect_success(
      fmt::format("LAUNCHED_SIZE=3 LAUNCHED_BY='mpiexec (MPICH)' timeout 60 mpiexec.hydra -n 3 {} {}",
                  own_path(), kSelf));
}

TEST(Launch, UnderOpenMpisMpirun) {
  if (!installed("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  if (!built_with_pmix()) GTEST_SKIP() << "built without PMIx's headers";
  // libpmix forgets a few bytes of its own, which a leak checker would hold against us.
  expect_success(
      fmt::format("ASAN_OPTIONS=detect_leaks=0 LAUNCHED_SIZE=3 LAUNCHED_BY='mpirun (Open MPI)' timeout 60 "
                  "mpirun.openmpi --allow-run-as-root "
                  "--oversubscribe -n 3 {} {}",
                  own_path(), kSelf));
}

/// Where step 0 of a job of Slurm meets (bootstrap/launch.h).
uint16_t slurm_port(int job) { return static_cast<uint16_t>(20000 + int64_t{64} * job % 10000); }

/// Processes with an environment like a launcher's; `of_rank` is a shell text with $r for the rank.
void expect_processes_meet(int ranks, const std::string& launcher, const std::string& of_rank) {
  expect_success(fmt::format(
      "pids=; for r in $(seq 0 {}); do env LAUNCHED_SIZE={} LAUNCHED_BY='{}' {} timeout 60 {} {} & "
      "pids=\"$pids $!\"; done; for p in $pids; do wait $p || exit 1; done",
      ranks - 1, ranks, launcher, of_rank, own_path(), kSelf));
}

TEST(Launch, UnderAFakedTorchrun) {
  const ReservedPort port;  // the root's, one above torchrun's own
  expect_processes_meet(
      3, "torchrun",
      fmt::format("RANK=$r WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT={} WEFT_LOG=error",
                  port.number() - 1));
}

TEST(Launch, UnderAFakedSrun) {
  // The port follows from the job's number: one whose port is free.
  int job = getpid();
  ReservedPort port(slurm_port(job));
  while (!port.valid()) port = ReservedPort(slurm_port(++job));
  expect_processes_meet(
      3, "srun",
      fmt::format("SLURM_PROCID=$r SLURM_NTASKS=3 SLURM_LOCALID=$r SLURM_JOB_ID={} SLURM_STEP_ID=0 "
                  "SLURM_STEP_NODELIST=localhost WEFT_JOB_SECRET=x",
                  job));
}

}  // namespace
}  // namespace weft::bootstrap
