// Which processes may share memory: the identity of a host as Weft sees it.
#include <unistd.h>

#include <array>

#include "base/hash.h"
#include "base/read_file.h"
#include "base/settings.h"
#include "topology/host.h"

namespace weft::topology {
namespace {

std::string read_link(const char* path) {
  std::array<char, 256> target{};
  const ssize_t length = readlink(path, target.data(), target.size());
  return length > 0 ? std::string(target.data(), length) : std::string();
}

}  // namespace

std::string host_id() {
  if (!settings().hostid.empty()) return settings().hostid;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  Result<std::string> boot_id = read_file("/proc/sys/kernel/random/boot_id");
  std::string identity = boot_id.ok() ? boot_id.take() : "";
  // pid and user: a process reads another's memory only if it can see and trace it. ipc: it separates
  // containers on purpose. net: one machine can play several by network namespaces, and unix sockets do not
  // cross them. mnt does not count: shared memory has no file.
  for (const char* space :
       {"/proc/self/ns/pid", "/proc/self/ns/user", "/proc/self/ns/ipc", "/proc/self/ns/net"}) {
    identity += read_link(space);
  }
  return fmt::format("{}-{:016x}", name, hash_64(identity));
}

}  // namespace weft::topology
