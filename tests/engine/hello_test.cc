// What ranks tell each other first, and what follows from it.
#include "engine/context/hello.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft::engine
