// What ranks tell each other first, and what follows from it.
#include "engine/context/hello.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

namespace weft::engine {
namespace {

Hello on(uint64_t machine, uint64_t cgroup, double cpu_quota) {
  Hello hello{};
  hello.machine = machine;
  hello.cpus = 1;
  hello.cgroup = cgroup;
  hello.cpu_quota = cpu_quota;
  return hello;
}

/// Two ranks, each with a CPU of its own.
int cpus_of(Hello first, Hello second) {
  first.cpu_mask = 1;
  second.cpu_mask = 2;
  return count_cpus({first, second, on(9, 9, 0)}, 0);
}

TEST(Hello, CpusAreNoMoreThanTheTimeThatControlGroupsGrant) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "this machine has one CPU";
  EXPECT_EQ(cpus_of(on(1, 1, 0), on(1, 1, 0)), 2);
  EXPECT_EQ(cpus_of(on(1, 1, 1), on(1, 1, 1)), 1) << "they share a group";
  EXPECT_EQ(cpus_of(on(1, 1, 1), on(1, 2, 1)), 2) << "each has a group of its own";
  EXPECT_EQ(cpus_of(on(1, 1, 1), on(1, 2, 0)), 2) << "one is not limited";
  EXPECT_EQ(cpus_of(on(1, 1, 0.5), on(1, 1, 0.5)), 1) << "never none";
}

uint64_t own_cgroup() {
  const auto id = bootstrap::create_unique_id("127.0.0.1");
  const auto alone = id.ok() ? bootstrap::Bootstrap::join(*id, 0, 1, Deadline::in_seconds(10)) : id.status();
  const auto hellos = alone.ok() ? exchange_hellos(**alone, "", Deadline::in_seconds(10)) : alone.status();
  return hellos.ok() ? hellos->front().cgroup : 0;
}

// Each pod calls its group "/". Eight pods of one CPU each were taken for one.
TEST(Hello, ContainersHaveGroupsOfTheirOwn) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWCGROUP) != 0) _exit(77);
    const uint64_t one = own_cgroup();
    if (unshare(CLONE_NEWCGROUP) != 0) _exit(77);
    const uint64_t other = own_cgroup();
    _exit(one != 0 && other != 0 && one != other ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "a namespace of control groups needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace weft::engine
