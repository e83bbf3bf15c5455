// weft_run as its users see it: a program with output, an exit code, and nothing left behind. Ranks are shell
// scripts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace {

using weft::UniqueFd;

struct Outcome {
  int code = -1;  // as a shell would show it
  std::string out, err;
};

/// A running weft_run whose output can be awaited.
class Launcher {
 public:
  explicit Launcher(std::vector<std::string> arguments, const std::string& input = "") {
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) std::abort();
    arguments.insert(arguments.begin(), WEFT_RUN);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(WEFT_RUN, argv.data());
      _exit(125);
    }
    for (const int fd : {in[0], out[1], err[1]}) close(fd);
    (void)!write(in[1], input.data(), input.size());
    close(in[1]);
    out_.reset(out[0]);
    err_.reset(err[0]);
  }
  ~Launcher() {
    if (pid_ > 0) finish();
  }

  pid_t pid() const { return pid_; }

  /// Reads until standard output holds `lines` lines; false when it ends before.
  bool await_lines(size_t lines) {
    while (static_cast<size_t>(std::count(result_.out.begin(), result_.out.end(), '\n')) < lines) {
      if (!read_some()) return false;
    }
    return true;
  }

  const std::string& out_so_far() const { return result_.out; }

  Outcome finish() {
    while (read_some()) continue;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result_;
  }

 private:
  /// False when both streams have ended, or nothing has come for so long that something must be wrong.
  bool read_some() {
    pollfd watched[] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
    if (!out_.valid() && !err_.valid()) return false;
    if (poll(watched, 2, 60'000) <= 0) {
      ADD_FAILURE() << "weft_run is silent and does not end";
      kill(pid_, SIGKILL);
      return false;
    }
    for (auto [fd, text, event] :
         {std::tuple{&out_, &result_.out, &watched[0]}, {&err_, &result_.err, &watched[1]}}) {
      if (event->revents == 0) continue;
      char chunk[4096];
      const ssize_t n = read(fd->get(), chunk, sizeof chunk);
      if (n > 0) text->append(chunk, static_cast<size_t>(n));
      if (n <= 0) fd->reset();
    }
    return true;
  }

  pid_t pid_;
  UniqueFd out_, err_;
  Outcome result_;
};

Outcome weft_run(std::vector<std::string> arguments, const std::string& input = "") {
  return Launcher(std::move(arguments), input).finish();
}

/// weft_run with options, running `script` in a shell on every rank.
std::vector<std::string> scripted(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"--", "sh", "-c", script});
  return options;
}

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Ranks print in any order.
Lines sorted_lines_of(const std::string& text) {
  Lines lines = lines_of(text);
  std::sort(lines.begin(), lines.end());
  return lines;
}

testing::AssertionResult mentions(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << '"' << text << "\" does not mention \"" << part << '"';
}

/// The numbers behind "pid " in labelled lines.
std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> pids;
  for (const std::string& line : lines_of(text)) {
    const size_t at = line.find("pid ");
    if (at != std::string::npos) pids.push_back(std::stoi(line.substr(at + 4)));
  }
  return pids;
}

/// Whether a process runs; one that has ended but was not reaped yet does not.
bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t behind_name = text.rfind(')');
  return behind_name != std::string::npos && text[behind_name + 2] != 'Z';
}

void expect_all_gone(const std::vector<pid_t>& pids) {
  const auto deadline = weft::Deadline::in_seconds(10);
  for (const pid_t pid : pids) {
    while (alive(pid) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(alive(pid)) << "process " << pid << " was left behind";
  }
}

// Prints the pid of the rank, of a child in its group and of one that has left for a session of its own; then
// waits.
const char* const kFamily =
    "echo pid $$; sleep 1000 & echo pid $!; setsid sh -c 'echo pid $$; exec sleep 1000' & sleep 1000";

TEST(WeftRun, LabelsWholeLinesAndKeepsStreamsApart) {
  const Outcome run =
      weft_run(scripted({"-n", "2"}, "printf one; sleep 0.05; echo ' line'; echo err >&2; printf partial"));
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(sorted_lines_of(run.out), (Lines{"[0] one line", "[0] partial", "[1] one line", "[1] partial"}));
  EXPECT_EQ(sorted_lines_of(run.err), (Lines{"[0] err", "[1] err"}));
}

TEST(WeftRun, PrintsLinesAsTheyAreWhenAsked) {
  EXPECT_EQ(weft_run({"-n", "2", "--no-label", "echo", "same"}).out, "same\nsame\n");
}

/// As mpirun spells it; the program's own options stay as they are.
TEST(WeftRun, TakesTheNumberOfRanksAsMpirunDoes) {
  EXPECT_EQ(weft_run({"-np", "2", "--no-label", "echo", "-np"}).out, "-np\n-np\n");
  const std::vector<std::string> job = {"-np", "2", "--no-label", "echo", "-np"};
  for (const std::vector<std::string>& before : {std::vector<std::string>{"--nodes", "2"},
                                                 {"--timeout", "50", "--grace", "1", "--keep-going"},
                                                 {"--nodes=2", "--no-bind"}}) {
    std::vector<std::string> arguments = before;
    arguments.insert(arguments.end(), job.begin(), job.end());
    EXPECT_EQ(weft_run(arguments).out, "-np\n-np\n") << before[0];
  }
}

TEST(WeftRun, TellsRanksWhereTheyAre) {
  const Outcome run =
      weft_run(scripted({"-n", "5", "--nodes", "2"},
                        "echo $WEFT_RANK/$WEFT_WORLD_SIZE $WEFT_LOCAL_RANK/$WEFT_LOCAL_SIZE $WEFT_NODE "
                        "$WEFT_HOSTID; test ${#WEFT_JOB_SECRET} = 64"));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(sorted_lines_of(run.out),
            (Lines{"[0] 0/5 0/3 0 node0", "[1] 1/5 1/3 0 node0", "[2] 2/5 2/3 0 node0", "[3] 3/5 0/2 1 node1",
                   "[4] 4/5 1/2 1 node1"}));
}

TEST(WeftRun, GivesAllRanksOneMeetingPointAndEachJobItsOwnSecret) {
  const std::vector<std::string> job =
      scripted({"-n", "3", "--no-label"}, "echo $WEFT_ROOT $WEFT_JOB_SECRET");
  const auto first = lines_of(weft_run(job).out), second = lines_of(weft_run(job).out);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_TRUE(first[0].starts_with("127.0.0.1:")) << first[0];
  EXPECT_EQ(first, Lines(3, first[0]));
  EXPECT_NE(first[0].substr(first[0].find(' ')), second.at(0).substr(second.at(0).find(' ')));
}

TEST(WeftRun, LeavesTheProgramsArgumentsAlone) {
  EXPECT_EQ(weft_run({"-n", "1", "echo", "-n", "7", "--nodes", "--", "x"}).out, "[0] 7 --nodes -- x\n");
}

TEST(WeftRun, OnlyRankZeroGetsStandardInput) {
  EXPECT_EQ(weft_run({"-n", "3", "cat"}, "hello\n").out, "[0] hello\n");
}

TEST(WeftRun, ReturnsTheFirstFailuresCode) {
  const Outcome run = weft_run(scripted({"-n", "3"}, "test $WEFT_RANK = 1 && exit 7; sleep 1000"));
  EXPECT_EQ(run.code, 7);
  EXPECT_TRUE(mentions(run.err, "rank 1 exited with code 7"));
}

TEST(WeftRun, CountsASignalAs128AndMore) {
  const Outcome run = weft_run(scripted({"-n", "2"}, "test $WEFT_RANK = 0 && kill -KILL $$; sleep 1000"));
  EXPECT_EQ(run.code, 128 + SIGKILL);
  EXPECT_TRUE(mentions(run.err, "rank 0 was killed by signal 9"));
}

TEST(WeftRun, KeepsGoingWhenAsked) {
  const Outcome run = weft_run(
      scripted({"-n", "3", "--keep-going"}, "test $WEFT_RANK = 1 && exit 9; sleep 0.2; echo still here"));
  EXPECT_EQ(run.code, 9);
  EXPECT_EQ(sorted_lines_of(run.out), (Lines{"[0] still here", "[2] still here"}));
}

TEST(WeftRun, TakesDescendantsAlongWhenARankFails) {
  Launcher run(scripted({"-n", "2"}, kFamily));
  ASSERT_TRUE(run.await_lines(6));
  const auto pids = pids_in(run.out_so_far());
  kill(pids.front(), SIGKILL);
  EXPECT_EQ(run.finish().code, 128 + SIGKILL);
  expect_all_gone(pids);
}

TEST(WeftRun, TakesDescendantsAlongWhenRanksEndWell) {
  const Outcome run =
      weft_run(scripted({"-n", "2"}, "setsid sh -c 'echo pid $$; exec sleep 1000' & sleep 0.2"));
  EXPECT_EQ(run.code, 0);
  ASSERT_EQ(pids_in(run.out).size(), 2u);
  expect_all_gone(pids_in(run.out));
}

TEST(WeftRun, KillsWhoeverIgnoresTheRequestToStop) {
  const Outcome run = weft_run(
      scripted({"-n", "2", "--grace", "0.2"},
               "trap '' TERM; echo pid $$; test $WEFT_RANK = 1 && exit 4; while :; do sleep 1; done"));
  EXPECT_EQ(run.code, 4);
  expect_all_gone(pids_in(run.out));
}

TEST(WeftRun, PassesOnTheSignalThatStopsIt) {
  Launcher run(scripted({"-n", "2"}, kFamily));
  ASSERT_TRUE(run.await_lines(6));
  kill(run.pid(), SIGTERM);
  const Outcome end = run.finish();
  EXPECT_EQ(end.code, 128 + SIGTERM);
  expect_all_gone(pids_in(end.out));
}

// The pid that a user has is the launcher's: SIGUSR2, which has ranks write their flight recorders, ended the
// job. Of the program's parents a shell that does not handle the signal must not die of it either.
TEST(WeftRun, PassesOnARequestInsteadOfEndingTheJob) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGQUIT}) {
    const std::string handler =
        "trap \"echo asked; exit 7\" USR1 USR2 QUIT; echo ready; while :; do sleep 0.05; done";
    Launcher launcher(scripted({"-n", "2", "--keep-going"}, "sh -c '" + handler + "'; echo code $?"));
    ASSERT_TRUE(launcher.await_lines(2));
    kill(launcher.pid(), signal);
    const Outcome outcome = launcher.finish();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(sorted_lines_of(outcome.out),
              (Lines{"[0] asked", "[0] code 7", "[0] ready", "[1] asked", "[1] code 7", "[1] ready"}));
    EXPECT_TRUE(mentions(outcome.err, "passed on to the ranks"));
  }
}

TEST(WeftRun, EndsNothingOverARequestThatNoRankHandles) {
  Launcher launcher(scripted({"-n", "2"}, "echo ready; sleep 0.5; echo done"));
  ASSERT_TRUE(launcher.await_lines(2));
  kill(launcher.pid(), SIGUSR2);
  const Outcome outcome = launcher.finish();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(mentions(outcome.err, "no rank handles it"));
}

TEST(WeftRun, IsStoppedBySigquitThatNoRankHandles) {
  Launcher launcher(scripted({"-n", "2", "--grace", "2"}, "ulimit -c 0; echo ready; exec sleep 100"));
  ASSERT_TRUE(launcher.await_lines(2));
  kill(launcher.pid(), SIGQUIT);
  EXPECT_EQ(launcher.finish().code, 128 + SIGQUIT);
}

TEST(WeftRun, LeavesNoRankBehindWhenItIsKilled) {
  Launcher run(scripted({"-n", "2"}, "echo pid $$; sleep 1000 & echo pid $!; wait"));
  ASSERT_TRUE(run.await_lines(4));
  kill(run.pid(), SIGKILL);
  expect_all_gone(pids_in(run.finish().out));
}

TEST(WeftRun, StopsAfterTheTimeout) {
  const Outcome run = weft_run({"-n", "2", "--timeout", "0.1", "sleep", "1000"});
  EXPECT_EQ(run.code, 124);
  EXPECT_TRUE(mentions(run.err, "2 of 2 ranks are still running after 0.1 s"));
}

TEST(WeftRun, StopsRanksWhenNobodyReadsTheirOutput) {
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(STDERR_FILENO);
    open("/dev/null", O_WRONLY);
    execl(WEFT_RUN, WEFT_RUN, "-n", "1", "yes", nullptr);
    _exit(125);
  }
  close(out[0]);
  close(out[1]);
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 0);
}

/// The wait status of a weft_run whose standard output is `out`, after `before`; a hanging one is ended by
/// SIGALRM.
template <typename Before>
int status_of(std::vector<const char*> arguments, int out, Before&& before) {
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out, STDOUT_FILENO);
    before();
    alarm(60);
    arguments.insert(arguments.begin(), WEFT_RUN);
    arguments.push_back(nullptr);
    execv(WEFT_RUN, const_cast<char* const*>(arguments.data()));
    _exit(125);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST(WeftRun, SeesRanksEndWhereItsParentIgnoresChildren) {
  const int status = status_of({"-n", "2", "sh", "-c", "exit $((3 * WEFT_RANK))"}, STDOUT_FILENO,
                               [] { signal(SIGCHLD, SIG_IGN); });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(WeftRun, StopsAfterTheTimeoutThoughItsOutputIsNotRead) {
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  const UniqueFd unread(out[0]), sink(out[1]);
  const int status = status_of({"-n", "2", "--timeout", "0.2", "--grace", "0.2", "yes"}, sink.get(), [] {});
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 124);
}

TEST(WeftRun, TakesATimeoutThatTheClockCannotCountForNone) {
  EXPECT_EQ(weft_run({"-n", "1", "--timeout", "1e10", "true"}).code, 0);
}

TEST(WeftRun, SaysItsVersion) {
  const Outcome run = weft_run({"--version"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out.find("weft_run 0."), 0u) << run.out;
  EXPECT_EQ(lines_of(run.out).size(), 1u) << run.out;
}

TEST(WeftRun, ExplainsWrongUsage) {
  const struct {
    std::vector<std::string> arguments;
    const char* sentence;
  } cases[] = {
      {{"true"}, "-n (or --ranks) is missing"},
      {{"--", "true"}, "-n (or --ranks) is missing"},
      {{}, "-n (or --ranks) is missing"},
      {{"-n", "four", "--", "true"}, "the number of ranks is four, must be a whole number from 1 to 4096"},
      {{"-n", "2", "--timeout", "long", "true"}, "--timeout is long, must be a number"},
      {{"-n"}, "--ranks takes a whole number, which is missing"},
      {{"--foo", "true"}, "unknown option --foo"},
      {{"--foo", "-n", "2", "--", "true"}, "unknown option --foo"},
      {{"-n", "0", "true"}, "-n is 0, must be from 1 to 4096"},
      {{"-n", "2", "--nodes", "3", "true"}, "--nodes is 3, must be from 1 to the number of ranks, 2"},
      {{"-n", "2", "--timeout", "-1", "true"}, "--timeout is -1, must be positive"},
      {{"-n", "2"}, "no program given"},
      {{
           "-n",
           "2",
           "--",
       },
       "no program given"},
      {{"-n", "2", "--label", "true"}, "unknown option --label"},
      {{"-n", "2", "/nonexistent/program"}, "cannot run /nonexistent/program: No such file or directory"},
  };
  for (const auto& [arguments, sentence] : cases) {
    const Outcome run = weft_run(arguments);
    EXPECT_EQ(run.code, 2) << sentence;
    EXPECT_TRUE(mentions(run.err, sentence));
    EXPECT_EQ(run.out, "");
  }
}

/// A network of this process's own, in which ports from `first` to `last` are given to those who ask for any.
bool enter_network(int first, int last) {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << first << " " << last << std::endl;
  return ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0;
}

// Rank 0 listens on all addresses; the end of a connection on one of them, even one just closed, is in its
// way.
TEST(WeftRun, RanksMeetOnAPortThatIsFreeOnEveryAddress) {
  constexpr uint16_t kFirst = 50'000, kFree = 50'015;
  constexpr int kSkipped = 77;
  const pid_t child = fork();
  if (child == 0) {
    if (!enter_network(kFirst, kFree)) _exit(kSkipped);
    std::vector<UniqueFd> taken;
    for (uint16_t port = kFirst; port < kFree; ++port) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
      address.sin_port = htons(port);
      taken.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(bind(taken.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << port;
    }
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(weft_run(scripted({"-n", "1", "--no-label"}, "echo ${WEFT_ROOT##*:}")).out, "50015\n");
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped)
    GTEST_SKIP() << "making network namespaces needs root";
  EXPECT_EQ(status, 0);
}

}  // namespace
