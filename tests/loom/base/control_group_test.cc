// Limits of control groups: the tightest on the way up counts, of both versions, and a group that cannot be
// read has none.
#include "base/control_group.h"

#include <sched.h>

#include <thread>

#include "base/allowed_cpus.h"
#include "base/process_memory.h"
#include "support.h"

namespace loom::testing {
namespace {

class ControlGroup : public ::testing::Test {
 protected:
  /// A file below where groups are shown, in a folder that is made for it.
  void put(const std::string& path, std::string_view content) {
    const std::filesystem::path file = std::filesystem::path(files_.hierarchy) / path;
    std::filesystem::create_directories(file.parent_path());
    put_file(file, content);
  }
  void belongs_to(std::string_view membership) { put_file(files_.membership, membership); }

  TemporaryFolder folder_;
  GroupFiles files_{folder_ / "membership", folder_ / "cgroup"};
};

TEST_F(ControlGroup, TheTightestLimitOfVersionTwoCounts) {
  belongs_to("0::/jobs/one\n");
  put("jobs/memory.max", "3000000\n");
  put("jobs/one/memory.max", "max\n");
  put("jobs/cpu.max", "max 100000\n");
  put("jobs/one/cpu.max", "150000 100000\n");
  EXPECT_TRUE(memory_limit(files_).limited);
  EXPECT_EQ(memory_limit(files_).amount, 3e6);
  EXPECT_EQ(cpu_limit(files_).amount, 1.5);
  EXPECT_NE(memory_limit(files_).group, cpu_limit(files_).group) << "one is jobs', the other is one's";
  put("jobs/one/memory.max", "1000000\n");
  EXPECT_EQ(memory_limit(files_).amount, 1e6);
  EXPECT_EQ(memory_limit(files_).group, cpu_limit(files_).group);
}

TEST_F(ControlGroup, TwoGroupsBelowOneLimitShareIt) {
  put("jobs/memory.max", "3000000\n");
  put("jobs/one/memory.max", "max\n");
  put("jobs/two/memory.max", "max\n");
  belongs_to("0::/jobs/one\n");
  const GroupLimit one = memory_limit(files_);
  belongs_to("0::/jobs/two\n");
  EXPECT_EQ(memory_limit(files_).group, one.group);
  put("jobs/two/memory.max", "2000000\n");
  EXPECT_NE(memory_limit(files_).group, one.group);
}

TEST_F(ControlGroup, LimitsOfVersionOneCount) {
  belongs_to("7:memory:/box\n3:cpuset:/elsewhere\n2:cpu,cpuacct:/box\n0::/\n");
  put("memory/memory.limit_in_bytes", "9223372036854771712\n");  // as version 1 says that there is none
  put("memory/box/memory.limit_in_bytes", "5000000\n");
  put("cpu/cpu.cfs_quota_us", "-1\n");
  put("cpu/cpu.cfs_period_us", "100000\n");
  put("cpu/box/cpu.cfs_quota_us", "250000\n");
  put("cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(memory_limit(files_).amount, 5e6);
  EXPECT_EQ(cpu_limit(files_).amount, 2.5);
}

/// A container sees its own group as the root, whatever its membership is called outside.
TEST_F(ControlGroup, WhatIsNotThereToBeReadIsClimbedPast) {
  belongs_to("4:memory:/docker/abc\n");
  put("memory/memory.limit_in_bytes", "7000000\n");
  EXPECT_EQ(memory_limit(files_).amount, 7e6);
}

TEST_F(ControlGroup, WithoutLimitsThereAreNone) {
  EXPECT_FALSE(memory_limit(files_).limited) << "no membership";
  belongs_to("4:memory:/\n0::/a\nno line of a group\n");
  put("memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("a/memory.max", "max\n");
  put("a/cpu.max", "max 100000\n");
  EXPECT_FALSE(memory_limit(files_).limited);
  EXPECT_FALSE(cpu_limit(files_).limited);
}

TEST(ControlGroupHere, LeavesSomeMemoryAndACpu) {
  EXPECT_GT(machine_bytes(), int64_t{64} << 20);
  EXPECT_LE(machine_bytes(), installed_bytes());
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)));
}

/// A thread that is bound to one CPU has one, however many the machine has.
TEST(ControlGroupHere, CpusAreThoseThatTheThreadMayRunOn) {
  const AllowedCpus before = allowed_cpus();
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(::sched_getcpu()), &set);
    ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(allowed_cpus().count, 1);
    EXPECT_EQ(available_cpus(), 1);
    EXPECT_EQ(allowed_cpus().set == before.set, before.count == 1);
  }).join();
  EXPECT_EQ(allowed_cpus().set, before.set);
}

}  // namespace
}  // namespace loom::testing
