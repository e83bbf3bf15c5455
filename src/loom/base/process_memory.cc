// The sums of /proc/self/smaps_rollup.
#include "base/process_memory.h"

#include <fcntl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "base/control_group.h"
#include "base/fd.h"

namespace loom {
namespace {

/// The number behind "NAME:", in kB there.
int64_t bytes_of(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  const size_t digit = text.find_first_of("0123456789", at + name.size());
  if (digit == std::string_view::npos) return 0;
  int64_t value = 0;
  std::from_chars(text.data() + digit, text.data() + text.size(), value);
  return value * 1024;
}

}  // namespace

int64_t resident_bytes() {
  const UniqueFd file(::open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return 0;
  char content[4096];
  size_t size = 0;
  while (size < sizeof content) {
    const ssize_t got = ::read(file.get(), content + size, sizeof content - size);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  const std::string_view text(content, size);
  return bytes_of(text, "Pss_Anon:") + bytes_of(text, "Pss_Shmem:");
}

int64_t installed_bytes() {
  struct sysinfo machine;
  if (::sysinfo(&machine) != 0) return INT64_MAX;
  return static_cast<int64_t>(machine.totalram + machine.totalswap) * machine.mem_unit;
}

int64_t machine_bytes() {
  const int64_t installed = installed_bytes();
  const GroupLimit limit = memory_limit();
  return limit.limited && limit.amount < static_cast<double>(installed) ? static_cast<int64_t>(limit.amount)
                                                                        : installed;
}

}  // namespace loom
