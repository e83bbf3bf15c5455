// Control groups: what the kernel lets this process have of its machine, where it is less than all of it. A
// container or a job of a cluster's scheduler is one.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace loom {

/// The tightest limit of one kind on the path from this process's group to the root.
struct GroupLimit {
  bool limited = false;
  double amount = 0;   // bytes, or CPUs
  uint64_t group = 0;  // what tells the group that has the limit apart from others of this machine
};

/// Where the kernel shows them, of versions 1 and 2: the group of each kind that this process is in, and the
/// groups as folders. In a container the groups above its own are not there to be read.
struct GroupFiles {
  std::string membership = "/proc/self/cgroup";
  std::string hierarchy = "/sys/fs/cgroup";
};

/// Of memory.max or memory.limit_in_bytes.
GroupLimit memory_limit(const GroupFiles& files = {});
/// Of cpu.max, or of cpu.cfs_quota_us over cpu.cfs_period_us.
GroupLimit cpu_limit(const GroupFiles& files = {});

/// CPUs that this process may keep busy, at least 1: those that it may run on, and no more than its control
/// group's time is enough for, a part of one left out.
int available_cpus();

}  // namespace loom
