// What Linux states of devices and limits in files. Roots are arguments, so that tests bring their own.
// Private to topology/.
#pragma once

#include <string>
#include <vector>

#include "topology/host.h"

namespace weft::topology::sysfs {

/// Network interfaces of `root`/class/net, then RDMA devices of `root`/class/infiniband, each by name.
std::vector<Interface> read_interfaces(const std::string& root);

/// Display controllers and 3D accelerators of `root`/bus/pci/devices, by address.
std::vector<Gpu> read_gpus(const std::string& root);

/// The tightest CPU bandwidth limit (cpu.max, or cgroup v1's cpu.cfs_quota_us) on the path of this process's
/// group; 0 = none. `membership` is the text file /proc/self/cgroup, `hierarchy` where cgroups are mounted.
double read_cpu_quota(const std::string& membership, const std::string& hierarchy);

/// "0-3,8" as numbers; empty if it is not such a list.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace weft::topology::sysfs
