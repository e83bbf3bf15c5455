#include "engine/context/hello.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unordered_map>

#include "base/hash.h"
#include "base/read_file.h"
#include "base/settings.h"
#include "topology/host.h"
#include "topology/sysfs.h"
#include "transport/ofi_providers.h"

namespace weft::engine {
namespace {

constexpr uint32_t kWireVersion = 19;

uint64_t machine_hash() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot_id);
  if (!boot_id.empty()) return hash_64(boot_id);
  char name[256] = {};  // where the kernel is hidden from containers
  gethostname(name, sizeof name - 1);
  return hash_64(name);
}

void note_quota(Hello& hello) {
  constexpr char kMembership[] = "/proc/self/cgroup";
  const Result<std::string> membership = read_file(kMembership);
  // In namespaces of their own all containers are in the group "/".
  std::error_code none;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/cgroup", none);
  hello.cgroup = hash_64((membership.ok() ? *membership : "") + space);
  hello.cpu_quota = topology::sysfs::read_cpu_quota(kMembership, "/sys/fs/cgroup");
}

/// The CPUs that this rank may use: a launcher gives each rank its own, or all the same ones.
void note_cpus(Hello& hello) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {  // more CPUs than a set of that size holds
    hello.cpus = std::max(std::thread::hardware_concurrency(), 1u);
    return;
  }
  hello.cpus = static_cast<uint32_t>(CPU_COUNT(&set));
  hello.cpu_mask = hash_64({reinterpret_cast<const char*>(&set), sizeof set});
}

Hello own_hello(const std::string& host_id, int ranks) {
  const Settings& settings = weft::settings();
  Hello mine;
  std::memset(&mine, 0, sizeof mine);
  mine.wire_version = kWireVersion;
  for (size_t i = 0; i < std::size(kSameOnAll); ++i)
    mine.settings[i] = static_cast<uint32_t>(hash_64(weft::current_value(kSameOnAll[i])));
  mine.machine = machine_hash();
  mine.host = hash_64(host_id.empty() ? topology::host_id() : host_id);
  mine.shm = settings.shm;
  mine.traces = !settings.trace.empty();
  note_cpus(mine);
  note_quota(mine);
  mine.efa = settings.net == "auto" && ranks > 1 && transport::efa_is_usable();
  return mine;
}

Status check_hellos(const std::vector<Hello>& hellos, int rank) {
  const Hello& mine = hellos[rank];
  for (size_t peer = 0; peer < hellos.size(); ++peer) {
    if (hellos[peer].wire_version != mine.wire_version)
      return fail(Code::mismatch,
                  "rank {} speaks version {} of Weft's protocol, rank {} version {}: use one version of "
                  "libweft on all ranks",
                  peer, hellos[peer].wire_version, rank, mine.wire_version);
  }
  return {};
}

/// Names a setting that must have one value and does not, with both values. A collective where one differs:
/// all ranks see the same hashes, so all take part in telling the values.
Status check_settings(bootstrap::Bootstrap& bootstrap, const std::vector<Hello>& hellos, Deadline deadline) {
  for (size_t i = 0; i < std::size(kSameOnAll); ++i) {
    const auto other = std::find_if(hellos.begin(), hellos.end(), [&](const Hello& hello) {
      return hello.settings[i] != hellos.front().settings[i];
    });
    if (other == hellos.end()) continue;
    struct Value {
      char text[120];
    } mine{};
    weft::current_value(kSameOnAll[i]).copy(mine.text, sizeof mine.text - 1);
    const auto values = exchange(bootstrap, mine, deadline);
    if (!values) return values.status();
    const auto rank = static_cast<size_t>(other - hellos.begin());
    const auto said = [&](size_t r) {
      const std::string_view text((*values)[r].text);
      return text.empty() ? std::string("not set") : fmt::format("'{}'", text);
    };
    return fail(Code::mismatch, "{} is {} on rank 0 and {} on rank {}: set it alike on all ranks",
                kSameOnAll[i], said(0), said(rank), rank);
  }
  return {};
}

}  // namespace

Result<std::vector<Hello>> exchange_hellos(bootstrap::Bootstrap& bootstrap, const std::string& host_id,
                                           Deadline deadline) {
  auto hellos = exchange(bootstrap, own_hello(host_id, bootstrap.ranks()), deadline);
  if (!hellos) return hellos;
  WEFT_TRY(check_hellos(*hellos, bootstrap.rank()));
  WEFT_TRY(check_settings(bootstrap, *hellos, deadline));
  return hellos;
}

topology::Layout layout_of(const std::vector<Hello>& hellos) {
  std::unordered_map<uint64_t, int> label_of_host;
  std::vector<int> labels;
  int next_label = 0;
  for (const Hello& hello : hellos) {
    if (!hello.shm) {
      labels.push_back(next_label++);
      continue;
    }
    auto [it, is_new] = label_of_host.try_emplace(hello.host, next_label);
    if (is_new) ++next_label;
    labels.push_back(it->second);
  }
  return topology::Layout(labels);
}

int count_ranks(const std::vector<Hello>& hellos, int rank) {
  return static_cast<int>(std::count_if(hellos.begin(), hellos.end(), [&](const Hello& hello) {
    return hello.machine == hellos[rank].machine;
  }));
}

int place_of(const std::vector<Hello>& hellos, int rank) {
  return static_cast<int>(std::count_if(hellos.begin(), hellos.begin() + rank, [&](const Hello& hello) {
    return hello.machine == hellos[rank].machine;
  }));
}

// Those of every different mask. Where each control group is limited, the sum of their limits.
int count_cpus(const std::vector<Hello>& hellos, int rank) {
  std::unordered_map<uint64_t, uint32_t> masks;
  std::unordered_map<uint64_t, double> quotas;
  bool limited = true;
  for (const Hello& hello : hellos) {
    if (hello.machine != hellos[rank].machine) continue;
    masks[hello.cpu_mask] = hello.cpus;
    quotas[hello.cgroup] = hello.cpu_quota;
    limited = limited && hello.cpu_quota > 0;
  }
  double cpus = 0, quota = 0;
  for (const auto& [mask, count] : masks) cpus += count;
  for (const auto& [group, share] : quotas) quota += share;
  cpus = std::min(cpus, static_cast<double>(std::max(std::thread::hardware_concurrency(), 1u)));
  return std::max(static_cast<int>(limited ? std::min(cpus, quota) : cpus), 1);
}

}  // namespace weft::engine
