#include "board.h"

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>

namespace soak {
namespace {

int count_entries(const char* folder) {
  DIR* const entries = opendir(folder);
  int count = 0;
  while (entries != nullptr && readdir(entries) != nullptr) ++count;
  if (entries != nullptr) closedir(entries);
  return count - 2;  // "." and ".."
}

}  // namespace

Usage measure_usage() {
  Usage usage;
  usage.descriptors = count_entries("/proc/self/fd") - 1;  // not the one that reads the folder
  usage.threads = count_entries("/proc/self/task");
  const struct mallinfo2 heap = mallinfo2();
  usage.heap_bytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  long all = 0, resident = 0;
  if (FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &all, &resident) == 2)
      usage.resident_bytes = resident * sysconf(_SC_PAGESIZE);
    std::fclose(file);
  }
  return usage;
}

void Board::begin_round(uint64_t round_seed) {
  seed = round_seed;
  id_ready = false;
  met = 0;
}

void Board::report(const std::string& what) {
  if (!has_finding.exchange(true)) what.copy(finding.data(), finding.size() - 1);
}

}  // namespace soak
