// What a process that was killed has left of libfabric's shared memory, for tests that use its provider
// `shm`.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace weft {

/// libfabric names shared memory after the process, and finds it busy while a process of that number lives: a
/// process that has just begun owns none of those names yet, and one that has ended none any more.
inline void remove_leftovers(pid_t process) {
  const std::string prefix = std::to_string(process) + ":";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored))
    if (entry.path().filename().string().starts_with(prefix)) std::filesystem::remove(entry.path(), ignored);
}

}  // namespace weft
