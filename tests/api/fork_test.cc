// Processes that fork while they have communicators: data loaders, helpers, daemons. A child disturbs nobody,
// and does not hide that its parent has died.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "api/processes.h"

extern char** environ;

static bool g_is_child = false;
/// Asked by the leak check, where there is one. A child has one thread: what only the stacks of its parent's
/// other threads hold would be reported.
extern "C" [[gnu::visibility("default")]] int __lsan_is_turned_off() { return g_is_child; }

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

weftResult_t sum(weftComm_t comm, float& value) {
  value = 1;
  return weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, nullptr);
}

/// Memory in which helpers of ranks, which are processes of their own, leave word for the test.
struct Board {
  std::atomic<pid_t> helper{0};
  std::atomic<int> outcome{-1};
};

class Forks : public ::testing::Test {
 protected:
  Forks()
      : board_(new (mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                   Board) {
    std::fflush(nullptr);  // children that exit would write it again
  }
  ~Forks() override {
    if (board_->helper > 0) kill(board_->helper, SIGKILL);
    munmap(board_, sizeof(Board));
  }

  /// Rank 1 does `die`, which does not return; all others must be told so soon.
  void others_learn_of(const Nodes& nodes, const std::function<void(Rank&)>& die) {
    Arrivals finished;
    const auto statuses = run_processes(nodes, [&](Rank& me) {
      float value = 0;
      for (int i = 0; i < 10; ++i)
        if (sum(me.comm, value) != weftSuccess) return 1;
      finished.arrive();
      if (me.rank == 1) {
        finished.wait_for(me.size);
        die(me);
      }
      const auto begin = Clock::now();
      weftResult_t result = weftSuccess;
      while (result == weftSuccess) result = sum(me.comm, value);
      const std::string why = weftGetLastError(me.comm);
      if (Clock::now() - begin > std::chrono::seconds(15)) return 2;
      if (result == weftRemoteError && why.find("rank 1") != std::string::npos) return 0;
      fprintf(stderr, "rank %d: result %d: %s\n", me.rank, result, why.c_str());
      return 3;
    });
    for (size_t rank = 0; rank < nodes.size(); ++rank) {
      if (rank == 1) continue;
      EXPECT_TRUE(exited_with(statuses[rank], 0)) << "rank " << rank << ": " << statuses[rank];
    }
    end_helper();
  }

  /// The helper has this test's output open, whose end ctest waits for.
  void end_helper() {
    for (int waits = 0; board_->helper == 0 && waits < 1000; ++waits) usleep(10'000);
    if (const pid_t helper = board_->helper.exchange(0); helper > 0) kill(helper, SIGKILL);
  }

  [[noreturn]] void live_on() {
    board_->helper = static_cast<pid_t>(syscall(SYS_getpid));
    alarm(50);
    for (;;) pause();
  }

  Board* const board_;
};

// The child held the sockets, and the death was seen at the deadline only.
TEST_F(Forks, AChildThatLivesOnDoesNotHideItsParentsDeath) {
  for (const Nodes& nodes : {blocks(1, 3), blocks(3, 1)})
    others_learn_of(nodes, [&](Rank&) {
      if (fork() == 0) live_on();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      raise(SIGKILL);
    });
}

// No handler runs there, so that they keep the sockets: the peers watch the process itself.
TEST_F(Forks, AChildOfARawCloneOrAVforkDoesNotHideItEither) {
  others_learn_of(blocks(1, 3), [&](Rank&) {
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) live_on();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    raise(SIGKILL);
  });
  others_learn_of(blocks(1, 3), [&](Rank&) {
    if (vfork() == 0) {
      kill(getppid(), SIGKILL);
      live_on();
    }
  });
}

TEST_F(Forks, ProgramsThatARankHasStartedHoldNothingOfIts) {
  others_learn_of(blocks(3, 1), [&](Rank&) {
    const char* const arguments[] = {"sleep", "50", nullptr};
    pid_t pid = 0;
    if (posix_spawnp(&pid, "sleep", nullptr, nullptr, const_cast<char**>(arguments), environ) != 0) _exit(1);
    board_->helper = pid;
    if (system("sleep 20 > /dev/null 2>&1 &") != 0) _exit(1);
    raise(SIGKILL);
  });
}

/// The descriptors of this process that a program which it starts would have.
std::set<int> inherited() {
  std::set<int> found;
  for (int fd = 3; fd < 4096; ++fd)
    if (const int flags = fcntl(fd, F_GETFD); flags >= 0 && (flags & FD_CLOEXEC) == 0) found.insert(fd);
  return found;
}

TEST_F(Forks, EveryDescriptorOfTheLibraryIsClosedOnExec) {
  const char* const net = getenv("WEFT_NET");
  if (net && std::string(net) == "ofi") GTEST_SKIP() << "libfabric's providers open descriptors of their own";
  for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)}) {
    static std::set<int> before;
    const auto statuses = run_processes(
        nodes,
        [&](Rank& me) {
          std::vector<float> data(1 << 20, 1.f);
          if (weftAllReduce(data.data(), data.data(), data.size(), weftFloat, weftSum, me.comm, nullptr) !=
              weftSuccess)
            return 1;
          for (const int fd : inherited()) {
            if (before.contains(fd)) continue;
            std::error_code error;
            fprintf(stderr, "descriptor %d: %s\n", fd,
                    std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error).c_str());
            return 2;
          }
          return 0;
        },
        [&](int) { before = inherited(); });
    for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
  }
}

/// Whether a child's call on its parent's communicator or stream came to the right refusal.
bool refused(weftResult_t result, const char* call) {
  const std::string why = weftGetLastError(nullptr);
  if (result == weftInvalidUsage && why.find("forked child") != std::string::npos) return true;
  fprintf(stderr, "%s: %d: %s\n", call, result, why.c_str());
  return false;
}
#define REFUSED(call) \
  if (!refused(call, #call)) return 1

/// Every call that takes a communicator or a stream.
int child_calls_all(weftComm_t comm, weftStream_t stream, void* registration, weftRedOp_t op) {
  float value = 1, values[8] = {};
  int number = 0;
  weftResult_t state = weftSuccess;
  weftComm_t made = nullptr;
  void* handle = nullptr;
  uint64_t position = 0;
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  REFUSED(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, nullptr));
  REFUSED(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, stream));
  REFUSED(weftReduceScatter(values, &value, 1, weftFloat, weftSum, comm, nullptr));
  REFUSED(weftAllGather(&value, values, 1, weftFloat, comm, nullptr));
  REFUSED(weftBroadcast(&value, &value, 1, weftFloat, 0, comm, nullptr));
  REFUSED(weftBcast(&value, 1, weftFloat, 0, comm, nullptr));
  REFUSED(weftReduce(&value, &value, 1, weftFloat, weftSum, 0, comm, nullptr));
  REFUSED(weftAlltoAll(values, values + 4, 1, weftFloat, comm, nullptr));
  REFUSED(weftGather(&value, values, 1, weftFloat, 0, comm, nullptr));
  REFUSED(weftScatter(values, &value, 1, weftFloat, 0, comm, nullptr));
  REFUSED(weftSend(&value, 1, weftFloat, 0, comm, nullptr));
  REFUSED(weftRecv(&value, 1, weftFloat, 0, comm, nullptr));
  REFUSED(weftCommCount(comm, &number));
  REFUSED(weftCommUserRank(comm, &number));
  REFUSED(weftCommGetAsyncError(comm, &state));
  REFUSED(weftCommGetStats(comm, &stats));
  REFUSED(weftCommDump(comm, "/dev/null"));
  REFUSED(weftCommSplit(comm, 0, 0, &made, nullptr));
  REFUSED(weftCommShrink(comm, nullptr, 0, &made, nullptr, WEFT_SHRINK_ABORT));
  REFUSED(weftCommRegister(comm, values, sizeof values, &handle));
  REFUSED(weftCommDeregister(comm, registration));
  REFUSED(weftRedOpCreatePreMulSum(&op, &value, weftFloat, weftScalarHostImmediate, comm));
  REFUSED(weftRedOpDestroy(op, comm));
  REFUSED(weftStreamSynchronize(stream));
  REFUSED(weftStreamGetPosition(stream, &position));
  REFUSED(weftStreamSynchronizeTo(stream, 0));
  REFUSED(weftStreamQuery(stream));
  REFUSED(weftStreamDestroy(stream));
  REFUSED(weftCommFinalize(comm));
  REFUSED(weftCommAbort(comm));
  REFUSED(weftCommAbortWithReason(comm, "a child"));
  REFUSED(weftCommDestroy(comm));
  const std::string why = weftGetLastError(comm);
  return why.find("daemon()") != std::string::npos ? 0 : 2;
}

/// Runs `body` in a child of every rank, in the middle of its calls: 0 and everybody goes on.
void children_disturb_nobody(const Nodes& nodes, const std::function<pid_t()>& make,
                             const std::function<int(Rank&, weftStream_t)>& body) {
  const auto statuses = run_processes(nodes, [&](Rank& me) {
    float value = 0;
    weftStream_t stream = nullptr;
    if (weftStreamCreate(&stream) != weftSuccess) return 1;
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 50; ++i)
        if (sum(me.comm, value) != weftSuccess || value != static_cast<float>(me.size)) return 2;
      const pid_t child = make();
      if (child == 0) {
        g_is_child = true;
        alarm(20);
        exit(body(me, stream));
      }
      int status = -1;
      waitpid(child, &status, 0);
      if (!exited_with(status, 0)) return 3;
    }
    for (int i = 0; i < 50; ++i)
      if (sum(me.comm, value) != weftSuccess || value != static_cast<float>(me.size)) {
        fprintf(stderr, "rank %d: %s\n", me.rank, weftGetLastError(me.comm));
        return 4;
      }
    return weftStreamDestroy(stream) == weftSuccess && weftCommDestroy(me.comm) == weftSuccess ? 0 : 5;
  });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << WEXITSTATUS(status);
}

pid_t raw_clone() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

// They went out in the parent's name, and its peers failed with a mismatch.
TEST_F(Forks, AChildsCallsOnItsParentsCommunicatorAreRefused) {
  for (const Nodes& nodes : {blocks(1, 2), blocks(2, 1)})
    for (const auto& make : {std::function<pid_t()>(fork), std::function<pid_t()>(raw_clone)})
      children_disturb_nobody(nodes, make, [](Rank& me, weftStream_t stream) {
        return child_calls_all(me.comm, stream, &me, weftSum);
      });
}

TEST_F(Forks, AChildMayExitAndFreeItsCopies) {
  children_disturb_nobody(blocks(2, 1), fork, [](Rank&, weftStream_t) { return 0; });
  void* shared = nullptr;
  children_disturb_nobody(
      blocks(1, 2),
      [&] {
        if (!shared && weftMemAlloc(&shared, 1000) != weftSuccess) return pid_t{-1};
        std::memset(shared, 7, 1000);
        return fork();
      },
      [&](Rank&, weftStream_t) {
        return weftMemFree(shared) == weftSuccess && weftMemFree(shared) == weftInvalidPointer ? 0 : 1;
      });
}

TEST_F(Forks, AGroupThatIsOpenStaysTheParents) {
  const auto statuses = run_processes(blocks(1, 2), [](Rank& me) {
    float value = 1;
    if (weftGroupStart() != weftSuccess) return 1;
    if (weftAllReduce(&value, &value, 1, weftFloat, weftSum, me.comm, nullptr) != weftSuccess) return 2;
    for (const auto& make : {std::function<pid_t()>(fork), std::function<pid_t()>(raw_clone)}) {
      const pid_t child = make();
      if (child == 0) {
        alarm(20);
        if (weftGroupEnd() != weftInvalidUsage) _exit(1);
        weftComm_t own = nullptr;
        if (weftCommInitAll(&own, 1, nullptr) != weftSuccess) _exit(2);
        if (sum(own, value) != weftSuccess || weftCommDestroy(own) != weftSuccess) _exit(3);
        _exit(0);
      }
      int status = -1;
      waitpid(child, &status, 0);
      if (!exited_with(status, 0)) return 10 + WEXITSTATUS(status);
    }
    return weftGroupEnd() == weftSuccess && value == 2 ? 0 : 3;
  });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << WEXITSTATUS(status);
}

// The ranks that stay see a death; the daemon's calls say what to do instead.
TEST_F(Forks, ADaemonIsNotTheRankThatItWas) {
  for (const Nodes& nodes : {blocks(1, 3), blocks(3, 1)}) {
    board_->outcome = -1;
    others_learn_of(nodes, [&](Rank& me) {
      if (daemon(1, 1) != 0) _exit(1);
      float value = 0;
      board_->outcome = refused(sum(me.comm, value), "a daemon's AllReduce") ? 0 : 1;
      live_on();
    });
    EXPECT_EQ(board_->outcome, 0);
  }
}

// Of many threads of the parent, the C library unmaps some stacks in the child, which hold what it knows of
// them.
TEST_F(Forks, AChildOfAProcessWithManyThreadsMayExit) {
  const auto statuses = run_processes(blocks(1, 2), [](Rank& me) {
    std::atomic<bool> over{false};
    std::vector<std::thread> many;
    for (int i = 0; i < 32; ++i) many.emplace_back([&] { over.wait(false); });
    const pid_t child = fork();
    if (child == 0) {
      g_is_child = true;
      alarm(20);
      std::thread([] {}).join();
      exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    over = true;
    over.notify_all();
    for (std::thread& each : many) each.join();
    float value = 0;
    if (!exited_with(status, 0) || sum(me.comm, value) != weftSuccess) return 1;
    return weftCommDestroy(me.comm) == weftSuccess ? 0 : 2;
  });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

// Processes are watched, too; one that stands still is a debugger's, or late.
TEST_F(Forks, ARankThatIsStoppedIsNotTakenForDead) {
  const auto statuses = run_processes(blocks(1, 3), [](Rank& me) {
    float value = 0;
    for (int i = 0; i < 10; ++i)
      if (sum(me.comm, value) != weftSuccess) return 1;
    if (me.rank == 1) {
      const pid_t helper = fork();
      if (helper == 0) {
        sleep(2);
        kill(getppid(), SIGCONT);
        _exit(0);
      }
      raise(SIGSTOP);
      waitpid(helper, nullptr, 0);
    }
    return sum(me.comm, value) == weftSuccess && value == 3 && weftCommDestroy(me.comm) == weftSuccess ? 0
                                                                                                       : 2;
  });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << WEXITSTATUS(status);
}

// A child has its parent's handler and the number of its doorbell.
TEST_F(Forks, ASignalToAChildDoesNotMakeItsParentWriteItsRecorder) {
  const std::string folder = ::testing::TempDir() + "fork_dumps." + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const auto statuses = run_processes(
      blocks(1, 2),
      [](Rank& me) {
        const pid_t child = fork();
        if (child == 0) {
          g_is_child = true;
          alarm(20);
          raise(SIGUSR2);
          exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        float value = 0;
        if (!exited_with(status, 0) || sum(me.comm, value) != weftSuccess) return 1;
        return weftCommDestroy(me.comm) == weftSuccess ? 0 : 2;
      },
      [&](int) { setenv("WEFT_RECORDER_DIR", folder.c_str(), 1); });
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::testing
