// Ranks on one machine whose processes may not inspect each other, so that they cannot share memory: they are
// nodes of their own, and the job works.
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "api/processes.h"
#include "transport/forbid.h"

namespace weft::testing {
namespace {

constexpr uid_t kNobody = 65534;

/// A process of another user that may be inspected by processes of that user: without the second call a
/// process that has changed its user may not.
void become_nobody() {
  if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(97);
  prctl(PR_SET_DUMPABLE, 1);
}

/// Runs collectives of several lengths on ranks that count as one node by name, after `before`. Returns how
/// many nodes there were, alike on all ranks; -1 with a failure.
int nodes_of(int ranks, const std::function<void(int)>& before) {
  const auto statuses = run_processes(
      blocks(1, ranks),
      [](Rank& me) {
        for (const size_t count : {size_t{4}, size_t{1} << 20}) {
          std::vector<float> data(count, 1.f);
          for (int i = 0; i < 3; ++i)
            if (weftAllReduce(data.data(), data.data(), count, weftFloat, weftMax, me.comm, nullptr) != 0)
              return 90;
          if (data[count / 2] != 1.f) return 91;
        }
        weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
        if (weftCommGetStats(me.comm, &stats) != weftSuccess) return 92;
        return weftCommDestroy(me.comm) == weftSuccess ? stats.nodes : 93;
      },
      before);
  for (const int status : statuses) {
    EXPECT_EQ(status, statuses.front());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 90) << WEXITSTATUS(status);
  }
  return WEXITSTATUS(statuses.front());
}

class InspectionByUser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (getuid() != 0) GTEST_SKIP() << "to be another user needs root";
  }
};

TEST_F(InspectionByUser, RanksOfOneUserShareANode) {
  EXPECT_EQ(nodes_of(3, [](int) { become_nobody(); }), 1);
}

// Creation failed, and named the kernel's refusal.
TEST_F(InspectionByUser, ARankOfAnotherUserIsANodeOfItsOwn) {
  EXPECT_EQ(nodes_of(3,
                     [](int rank) {
                       if (rank == 1) become_nobody();
                     }),
            2);
}

TEST_F(InspectionByUser, ARankThatMayNotBeDumpedIsANodeOfItsOwn) {
  EXPECT_EQ(nodes_of(4,
                     [](int rank) {
                       become_nobody();
                       if (rank == 2) prctl(PR_SET_DUMPABLE, 0);
                     }),
            2);
  EXPECT_EQ(nodes_of(3,
                     [](int) {
                       become_nobody();
                       prctl(PR_SET_DUMPABLE, 0);
                     }),
            3);
}

/// False where the kernel forbids it, and under the thread sanitizer, whose own thread unshare() refuses.
bool may_have_its_own_user_namespace() {
  const pid_t child = fork();
  if (child == 0) {
    become_nobody();
    _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(InspectionByUser, ARankOfAnotherUserNamespaceIsANodeOfItsOwn) {
  if (!may_have_its_own_user_namespace()) GTEST_SKIP() << "a process may not have its own user namespace";
  EXPECT_EQ(nodes_of(3,
                     [](int rank) {
                       become_nobody();
                       if (rank == 0 && unshare(CLONE_NEWUSER) != 0) _exit(96);
                     }),
            2);
}

// One could read the others, but they could not read it: what they exposed was of no use to it.
TEST(Inspection, OneRankThatMayNotCopyMakesAllStageLongData) {
  using transport::shm_test::forbid_system_call;
  for (const long call : {SYS_process_vm_readv, SYS_process_vm_writev})
    EXPECT_EQ(nodes_of(3,
                       [call](int rank) {
                         if (rank == 1) forbid_system_call(call, EPERM);
                       }),
              1);
}

// Shared memory is found through /proc, which not every chroot has.
TEST_F(InspectionByUser, ARankWithoutProcIsANodeOfItsOwn) {
  EXPECT_EQ(nodes_of(3,
                     [](int rank) {
                       if (rank != 0) return;
                       if (unshare(CLONE_NEWNS) != 0 ||
                           mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
                           mount("tmpfs", "/proc", "tmpfs", 0, nullptr) != 0)
                         _exit(96);
                     }),
            2);
}

}  // namespace
}  // namespace weft::testing
