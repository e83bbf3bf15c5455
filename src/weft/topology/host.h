// Host: what hwloc and the kernel say of this machine: CPUs, caches, memory nodes, network interfaces, GPUs.
// A value that is discovered once per process and only read afterwards. It says nothing of other machines
// (see Layout) nor of how fast anything is beyond the speed that a device states (see model/cost.h).
//
// Thread safety: every function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::topology {

/// A logical CPU. Numbers are the operating system's: what sched_setaffinity() takes.
struct Cpu {
  int id = 0;
  int core = 0;  // position of its core among the host's cores; CPUs with the same core are hardware threads
  int package = 0;      // position of its package
  int numa = 0;         // OS number of the nearest memory node
  bool allowed = true;  // this process may run there (affinity mask and cpuset)
};

struct NumaNode {
  int id = 0;
  uint64_t bytes = 0;
};

/// Caches of one level and size that hold data.
struct Cache {
  int level = 0;
  uint64_t bytes = 0;  // of one
  int count = 0;
};

struct Interface {
  std::string name;   // "eth0", or an RDMA device's: "efa_0", "mlx5_0"
  bool rdma = false;  // listed in /sys/class/infiniband, not in /sys/class/net
  bool up = false;    // has a carrier (or is not told that it has none)
  bool loopback = false;
  bool carries = true;  // Weft's connections may use it (topology/interface_rules.h); of RDMA devices always
  double gbit_per_s = 0;       // 0 = the device does not say
  int numa = -1;               // OS number of the memory node that it hangs on; -1 = not known
  std::vector<int> near_cpus;  // ascending; empty = not known, every CPU is as near
};

struct Gpu {
  std::string name;  // vendor and PCI device number: "NVIDIA 20b0"
  std::string pci;   // "0000:10:1c.0"
  int numa = -1;
};

struct Host {
  std::string name;
  std::vector<Cpu> cpus;  // ascending id
  int cores = 0;
  int packages = 0;
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;  // ascending level
  std::vector<Interface> interfaces;
  std::vector<Gpu> gpus;
  double cpu_quota = 0;  // CPUs' worth of time that the control group grants; 0 = no limit

  /// The ids of the CPUs that this process may use, ascending.
  std::vector<int> allowed_cpus() const;
  const Interface* find_interface(std::string_view interface_name) const;
};

/// This machine, discovered by the first call (milliseconds) and kept. Fails when hwloc does. An affinity
/// mask set later is not seen.
const Result<Host>& discover_host();

/// CPUs for progress threads. This host has `local_ranks` processes, each with `threads` such threads.
/// Thread `thread` of process `local_rank` should run on progress_cpus(…)[thread]. These CPUs are near
/// `interface` (null: anywhere) if there are enough, and on separate cores if there are enough. They are
/// counted from the highest core down, because applications are usually bound from the lowest up. Empty if
/// the processes' own threads and the progress threads do not have a CPU each: then the kernel places them
/// better than we can.
std::vector<int> progress_cpus(const Host& host, const Interface* interface, int threads, int local_rank = 0,
                               int local_ranks = 1);
/// The CPUs for this process's progress threads, near the fastest interface, one entry each. Empty: the
/// kernel chooses. The number of processes that share the host comes from the launcher's environment. Empty
/// if the launcher does not give it, if WEFT_PIN says so, or if WEFT_HOSTID makes the host several nodes and
/// the launcher counts those of a node.
std::vector<int> progress_cpus();
/// The fastest interface that is up and leads to other hosts, RDMA devices first; null if there is none.
const Interface* fastest_interface(const Host& host);

/// The same for processes of one machine that can share memory, and different otherwise. WEFT_HOSTID if it
/// is set. Else the host's name and a hash of its boot and of this process's pid, ipc, user and network
/// namespaces.
std::string host_id();

/// A tree, a line an object.
std::string to_string(const Host& host);

}  // namespace weft::topology
