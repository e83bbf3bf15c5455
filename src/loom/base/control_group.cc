// /proc/self/cgroup has a line "N:KINDS:PATH" for each hierarchy of version 1 and "0::PATH" for version 2.
#include "base/control_group.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/allowed_cpus.h"

namespace loom {
namespace {

namespace fs = std::filesystem;

/// A limit that is larger is the largest number of pages, which version 1 says for none.
constexpr double kNoBytes = 1e18;

/// What a folder says of the limit; 0: none.
using Read = std::function<double(const fs::path& folder)>;

double number_in(const fs::path& file) {
  std::ifstream stream(file);
  double number = 0;  // "max" is no number
  return stream >> number ? number : 0;
}

/// A group's limit holds for all groups below it: climbs from `group` to the root.
void climb(const fs::path& root, fs::path group, const Read& read, GroupLimit& tightest) {
  for (;; group = group.parent_path()) {
    const fs::path folder = group.empty() ? root : root / group;
    const double amount = read(folder);
    struct stat inode;
    if (amount > 0 && (!tightest.limited || amount < tightest.amount) && ::stat(folder.c_str(), &inode) == 0)
      tightest = {true, amount, (static_cast<uint64_t>(inode.st_dev) << 40) ^ inode.st_ino};
    if (group.empty()) return;
  }
}

/// `kind` is version 1's name of what is limited, which its folder has, too.
GroupLimit limit_of(const GroupFiles& files, const std::string& kind, const Read& unified, const Read& own) {
  GroupLimit tightest;
  std::ifstream membership(files.membership);
  for (std::string line; std::getline(membership, line);) {
    const size_t kinds = line.find(':'), path = line.find(":/", kinds + 1);
    if (kinds == std::string::npos || path == std::string::npos) continue;
    const std::string names = line.substr(kinds + 1, path - kinds - 1), group = line.substr(path + 2);
    if (names.empty()) climb(files.hierarchy, group, unified, tightest);
    else if (("," + names + ",").find("," + kind + ",") != std::string::npos)
      climb(fs::path(files.hierarchy) / kind, group, own, tightest);
  }
  return tightest;
}

}  // namespace

GroupLimit memory_limit(const GroupFiles& files) {
  const auto below_all = [](double bytes) { return bytes < kNoBytes ? bytes : 0; };
  return limit_of(
      files, "memory", [&](const fs::path& folder) { return below_all(number_in(folder / "memory.max")); },
      [&](const fs::path& folder) { return below_all(number_in(folder / "memory.limit_in_bytes")); });
}

GroupLimit cpu_limit(const GroupFiles& files) {
  return limit_of(
      files, "cpu",
      [](const fs::path& folder) {
        std::ifstream stream(folder / "cpu.max");
        double quota_us = 0, period_us = 0;
        return stream >> quota_us >> period_us && period_us > 0 ? quota_us / period_us : 0;
      },
      [](const fs::path& folder) {
        const double quota_us = number_in(folder / "cpu.cfs_quota_us"),  // -1: none
            period_us = number_in(folder / "cpu.cfs_period_us");
        return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0;
      });
}

int available_cpus() {
  const double cpus = allowed_cpus().count;
  const GroupLimit limit = cpu_limit();
  return std::max(1, static_cast<int>(limit.limited ? std::min(cpus, limit.amount) : cpus));
}

}  // namespace loom
