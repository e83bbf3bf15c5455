// The host as discovered here, as read from made-up files, and where progress threads go on made-up hosts.
#include "topology/host.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "topology/interface_rules.h"
#include "topology/sysfs.h"

namespace weft::topology {
namespace {
namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "weft_host_test_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

  fs::path root_;
};

/// `packages` packages of `cores` cores of two hardware threads: CPU i and CPU i + all cores share core i.
Host host_of(int packages, int cores) {
  Host host;
  host.name = "node";
  host.packages = packages;
  host.cores = packages * cores;
  for (int id = 0; id < 2 * host.cores; ++id) {
    const int core = id % host.cores;
    host.cpus.push_back({id, core, core / cores, core / cores, true});
  }
  for (int package = 0; package < packages; ++package) host.numa_nodes.push_back({package, 64ull << 30});
  host.caches = {{1, 32 << 10, host.cores}, {2, 1 << 20, host.cores}, {3, 32 << 20, packages}};
  Interface near_second{
      .name = "efa_1", .rdma = true, .up = true, .gbit_per_s = 100, .numa = 1, .near_cpus = {}};
  for (const Cpu& cpu : host.cpus) {
    if (cpu.package == 1) near_second.near_cpus.push_back(cpu.id);
  }
  host.interfaces = {near_second};
  return host;
}

TEST(Host, DiscoversThisMachine) {
  const Result<Host>& host = discover_host();
  ASSERT_TRUE(host.ok()) << host.status().message();
  EXPECT_GE(host->cores, 1);
  EXPECT_GE(host->packages, 1);
  EXPECT_GE(host->cpus.size(), static_cast<size_t>(host->cores));
  EXPECT_FALSE(host->numa_nodes.empty());
  EXPECT_TRUE(std::is_sorted(host->cpus.begin(), host->cpus.end(),
                             [](const Cpu& a, const Cpu& b) { return a.id < b.id; }));
  EXPECT_EQ(&discover_host(), &host) << "discovered once per process";
}

TEST(Host, AllowedCpusAreTheAffinityMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  std::vector<int> expected;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) expected.push_back(cpu);
  }
  EXPECT_EQ(discover_host()->allowed_cpus(), expected);
}

TEST(Host, HasALoopbackInterface) {
  const auto& all = discover_host()->interfaces;
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Interface& i) { return i.loopback; }));
}

TEST(Host, IdIsStableAndNamesTheHost) {
  EXPECT_EQ(host_id(), host_id());
  if (getenv("WEFT_HOSTID") == nullptr) {
    EXPECT_TRUE(host_id().starts_with(discover_host()->name + "-")) << host_id();
  }
}

TEST(Host, PrintsATree) {
  const std::string text = to_string(host_of(2, 4));
  EXPECT_NE(text.find("host node: 2 packages, 8 cores, 16 logical CPUs\n"), std::string::npos) << text;
  EXPECT_NE(text.find("├─ memory node 1: 64 GiB, CPUs 4-7,12-15\n"), std::string::npos) << text;
  EXPECT_NE(text.find("├─ caches: 8 × L1 32 KiB, 8 × L2 1 MiB, 2 × L3 32 MiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("└─ efa_1: RDMA device, 100 Gbit/s, at memory node 1, near CPUs 4-7,12-15\n"),
            std::string::npos)
      << text;
}

TEST(ProgressCpus, AreNearTheInterfaceOnCoresOfTheirOwnFromTheTop) {
  const Host host = host_of(2, 4);
  EXPECT_EQ(progress_cpus(host, &host.interfaces[0], 2), (std::vector<int>{7, 6}));
}

TEST(ProgressCpus, DifferForProcessesOfOneHost) {
  const Host host = host_of(2, 4);
  std::vector<int> all;
  for (int local_rank = 0; local_rank < 8; ++local_rank) {
    const auto cpus = progress_cpus(host, &host.interfaces[0], 1, local_rank, 8);
    all.insert(all.end(), cpus.begin(), cpus.end());
  }
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(std::vector<int>(all.begin(), all.begin() + 4), (std::vector<int>{7, 6, 5, 4}))
      << "cores near first";
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST(ProgressCpus, AreLeftToTheKernelWhereCpusAreFew) {
  const Host host = host_of(1, 2);
  EXPECT_EQ(progress_cpus(host, nullptr, 1, 0, 2).size(), 1u);
  EXPECT_TRUE(progress_cpus(host, nullptr, 1, 0, 3).empty());
}

TEST(ProgressCpus, AreOnlyAllowedOnes) {
  Host host = host_of(2, 4);
  for (Cpu& cpu : host.cpus) cpu.allowed = cpu.id == 1 || cpu.id == 5;
  EXPECT_EQ(progress_cpus(host, &host.interfaces[0], 1), std::vector<int>{5});
}

TEST_F(Files, InterfacesAreReadWithSpeedAndLocality) {
  write("class/net/eth0/type", "1");
  write("class/net/eth0/operstate", "up");
  write("class/net/eth0/speed", "25000");
  write("class/net/eth0/device/numa_node", "1");
  write("class/net/eth0/device/local_cpulist", "4-5,12");
  write("class/net/lo/type", "772");
  write("class/net/lo/operstate", "unknown");
  write("class/net/tap0/operstate", "down");
  write("class/net/tap0/speed", "-1");
  write("class/net/bonding_masters", "");
  write("class/infiniband/efa_0/ports/1/state", "4: ACTIVE");
  write("class/infiniband/efa_0/ports/1/rate", "100 Gb/sec (4X EDR)");
  const auto all = sysfs::read_interfaces(root_);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].name, "eth0");
  EXPECT_TRUE(all[0].up);
  EXPECT_EQ(all[0].gbit_per_s, 25);
  EXPECT_EQ(all[0].numa, 1);
  EXPECT_EQ(all[0].near_cpus, (std::vector<int>{4, 5, 12}));
  EXPECT_TRUE(all[1].loopback && all[1].up);
  EXPECT_FALSE(all[2].up);
  EXPECT_EQ(all[2].gbit_per_s, 0);
  EXPECT_TRUE(all[3].rdma && all[3].up);
  EXPECT_EQ(all[3].gbit_per_s, 100);
}

TEST(InterfaceRules, AFilterTakesByPrefixOrLeavesOut) {
  EXPECT_TRUE(InterfaceFilter("").takes("eth0"));
  EXPECT_FALSE(InterfaceFilter("").names());
  const InterfaceFilter some("eth1,,ib"), others("^docker,lo");
  EXPECT_TRUE(some.takes("eth1") && some.takes("ib0") && !some.takes("eth0") && some.names());
  EXPECT_TRUE(others.takes("eth0") && !others.takes("docker0") && !others.takes("lo") && !others.names());
}

// "=eth0" was taken for the beginning of a name, and left none.
TEST(InterfaceRules, AnEqualsSignMeansWholeNamesAsForNccl) {
  const InterfaceFilter some("=eth1,ib0"), others("^=docker0");
  EXPECT_TRUE(some.takes("eth1") && some.takes("ib0") && some.names());
  EXPECT_FALSE(some.takes("eth10") || some.takes("eth"));
  EXPECT_TRUE(others.takes("docker01") && !others.takes("docker0") && !others.names());
}

TEST(InterfaceRules, LinkLocalAddressesLeadNowhere) {
  const auto leads = [](const char* text) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    inet_pton(AF_INET6, text, &six.sin6_addr);
    return leads_beyond_link(reinterpret_cast<const sockaddr*>(&six));
  };
  const auto leads_four = [](const char* text) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    inet_pton(AF_INET, text, &four.sin_addr);
    return leads_beyond_link(reinterpret_cast<const sockaddr*>(&four));
  };
  EXPECT_TRUE(leads("fd00::1"));
  EXPECT_FALSE(leads("fe80::1"));
  EXPECT_TRUE(leads_four("10.0.0.1"));
  EXPECT_FALSE(leads_four("169.254.3.1"));
  EXPECT_FALSE(leads_beyond_link(nullptr));
}

TEST_F(Files, GpusAreFoundByTheirPciClass) {
  write("bus/pci/devices/0000:00:03.0/class", "0x020000");
  write("bus/pci/devices/0000:10:1c.0/class", "0x030200");
  write("bus/pci/devices/0000:10:1c.0/vendor", "0x10de");
  write("bus/pci/devices/0000:10:1c.0/device", "0x20b0");
  write("bus/pci/devices/0000:10:1c.0/numa_node", "1");
  const auto gpus = sysfs::read_gpus(root_);
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].name, "NVIDIA 20b0");
  EXPECT_EQ(gpus[0].pci, "0000:10:1c.0");
  EXPECT_EQ(gpus[0].numa, 1);
}

TEST_F(Files, TightestCpuQuotaOnThePathCounts) {
  write("self", "9:cpuset:/x\n0::/jobs/one");
  EXPECT_EQ(sysfs::read_cpu_quota(root_ / "self", root_), 0);
  write("jobs/one/cpu.max", "max 100000");
  write("jobs/cpu.max", "150000 100000");
  write("cpu.max", "400000 100000");
  EXPECT_EQ(sysfs::read_cpu_quota(root_ / "self", root_), 1.5);
}

// Docker on a host with version 1 shows the group's path on the host, and mounts the group itself.
TEST_F(Files, CpuQuotasOfTheFirstVersionCountToo) {
  write("self", "9:cpuset:/x\n4:cpu,cpuacct:/docker/one\n1:name=systemd:/docker/one\n");
  EXPECT_EQ(sysfs::read_cpu_quota(root_ / "self", root_), 0);
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(sysfs::read_cpu_quota(root_ / "self", root_), 0);
  write("cpu,cpuacct/cpu.cfs_quota_us", "250000");
  EXPECT_EQ(sysfs::read_cpu_quota(root_ / "self", root_), 2.5);
  write("cpu,cpuacct/docker/one/cpu.cfs_quota_us", "150000");
  write("cpu,cpuacct/docker/one/cpu.cfs_period_us", "100000");
  EXPECT_EQ(sysfs::read_cpu_quota(root_ / "self", root_), 1.5);
}

TEST(CpuList, RefusesWhatIsNone) {
  EXPECT_EQ(sysfs::parse_cpu_list("0-2,7"), (std::vector<int>{0, 1, 2, 7}));
  EXPECT_TRUE(sysfs::parse_cpu_list("").empty());
  EXPECT_TRUE(sysfs::parse_cpu_list("3-1").empty());
  EXPECT_TRUE(sysfs::parse_cpu_list("1;2").empty());
}

}  // namespace
}  // namespace weft::topology
