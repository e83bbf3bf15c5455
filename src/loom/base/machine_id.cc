// The kernel's boot id.
#include "base/machine_id.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "base/hash.h"

namespace loom {

uint64_t machine_id() {
  std::string identity;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, identity);
  if (identity.empty()) {
    char name[256] = {};
    (void)gethostname(name, sizeof name - 1);
    identity = name;
  }
  Hash64 hash;
  hash.add(identity);
  return hash.value();
}

}  // namespace loom
