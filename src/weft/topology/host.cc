// Discovery of the host through hwloc. Network interfaces come from sysfs (interfaces.cc), where hwloc has
// them too: sysfs also knows the virtual ones, and their speed.
#include "topology/host.h"

#include <hwloc.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/settings.h"
#include "base/thread.h"
#include "topology/interface_rules.h"
#include "topology/sysfs.h"

namespace weft::topology {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Result<Topology> load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fail_errno(errno, "hwloc cannot make a topology");
  Topology topology(raw);
  // Not to hop over all CPUs with the caller's thread while asking them.
  hwloc_topology_set_flags(raw,
                           HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  if (hwloc_topology_load(raw) != 0) return fail_errno(errno, "hwloc cannot read this machine's topology");
  return topology;
}

/// OS number of the memory node nearest to an object, or `unknown`.
int nearest_numa(hwloc_obj_t object, int unknown) {
  return object != nullptr && object->nodeset != nullptr && hwloc_bitmap_weight(object->nodeset) == 1
             ? hwloc_bitmap_first(object->nodeset)
             : unknown;
}

int ancestor_index(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_obj_t object, int otherwise) {
  const hwloc_obj_t ancestor = hwloc_get_ancestor_obj_by_type(topology, type, object);
  return ancestor ? static_cast<int>(ancestor->logical_index) : otherwise;
}

void read_cpus(hwloc_topology_t topology, Host& host) {
  // Of the main thread: one that happens to discover may be pinned.
  const std::vector<bool> mask = cpus_of(getpid());
  const hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
    const auto id = static_cast<int>(pu->os_index);
    host.cpus.push_back(
        {.id = id,
         .core = ancestor_index(topology, HWLOC_OBJ_CORE, pu, static_cast<int>(pu->logical_index)),
         .package = ancestor_index(topology, HWLOC_OBJ_PACKAGE, pu, 0),
         .numa = nearest_numa(pu, 0),
         .allowed = hwloc_bitmap_isset(allowed, id) &&
                    (mask.empty() || (id < static_cast<int>(mask.size()) && mask[id]))});
  }
  std::sort(host.cpus.begin(), host.cpus.end(), [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
  for (const Cpu& cpu : host.cpus) {
    host.cores = std::max(host.cores, cpu.core + 1);
    host.packages = std::max(host.packages, cpu.package + 1);
  }
}

void read_memory(hwloc_topology_t topology, Host& host) {
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    host.numa_nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory});
  }
  for (const hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE}) {
    std::map<uint64_t, int> count_of_size;  // big and little cores have caches of different sizes
    int level = 0;
    for (hwloc_obj_t cache = nullptr;
         (cache = hwloc_get_next_obj_by_type(topology, type, cache)) != nullptr;) {
      level = static_cast<int>(cache->attr->cache.depth);
      ++count_of_size[cache->attr->cache.size];
    }
    for (const auto& [bytes, count] : count_of_size) host.caches.push_back({level, bytes, count});
  }
}

/// An interface with a device, or one that WEFT_SOCKET_IFNAME names, and an address that leads somewhere.
/// Where there is no such thing, as in containers, ranks use the one interface by which they reach the root:
/// the first. A link-local address leads somewhere where all that are named have no other.
void note_use(std::vector<Interface>& interfaces) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return;  // then all may be
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> addresses(first, freeifaddrs);
  const InterfaceFilter filter(settings().socket_ifname);
  const auto has = [&](const Interface& interface, auto suits) {
    for (const ifaddrs* each = addresses.get(); each != nullptr; each = each->ifa_next)
      if (interface.name == each->ifa_name && suits(each->ifa_addr)) return true;
    return false;
  };
  Interface* other = nullptr;
  const auto note_those = [&](auto suits) {
    bool any = false;
    for (Interface& interface : interfaces) {
      if (interface.rdma) continue;
      const bool leads = filter.takes(interface.name) && has(interface, suits);
      interface.carries = leads && (filter.names() || is_physical(interface.name));
      if (other == nullptr && leads && interface.up && !interface.loopback) other = &interface;
      any |= interface.carries && interface.up;
    }
    return any;
  };
  if (note_those(leads_beyond_link) || (filter.names() && note_those(is_link_local))) return;
  if (other != nullptr) other->carries = true;
}

Result<Host> discover() {
  Result<Topology> topology = load_topology();
  if (!topology.ok()) return topology.status();
  Host host;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) == 0) host.name = name;
  read_cpus(topology->get(), host);
  read_memory(topology->get(), host);
  host.gpus = sysfs::read_gpus("/sys");
  host.interfaces = sysfs::read_interfaces("/sys");
  note_use(host.interfaces);
  host.cpu_quota = sysfs::read_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  if (host.cpus.empty()) return fail(Code::system_error, "hwloc found no CPU on {}", host.name);
  return host;
}

}  // namespace

const Result<Host>& discover_host() {
  static const Result<Host> host = discover();
  return host;
}

std::vector<int> Host::allowed_cpus() const {
  std::vector<int> ids;
  for (const Cpu& cpu : cpus) {
    if (cpu.allowed) ids.push_back(cpu.id);
  }
  return ids;
}

const Interface* Host::find_interface(std::string_view interface_name) const {
  for (const Interface& interface : interfaces) {
    if (interface.name == interface_name) return &interface;
  }
  return nullptr;
}

}  // namespace weft::topology
