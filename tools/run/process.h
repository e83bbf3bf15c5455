// Starting one rank, and making sure that nothing of it outlives the launcher.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace weft::run {

/// What a rank is started with.
struct Launch {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // added to, or replacing, ours
  std::vector<int> cpus;                 // to pin to; empty = anywhere
  bool inherit_stdin = false;            // else /dev/null
};

/// A running rank: the leader of a process group of its own, killed by the kernel when we die.
struct Rank {
  pid_t pid = -1;
  UniqueFd out, err;  // what it prints
};

/// Errors: invalid_argument when the program cannot be executed (the sentence says why), system_error.
Result<Rank> start(const Launch& launch);

/// A process that does nothing but wait for us to die without having said goodbye (SIGKILL); then it kills
/// the process groups that it was told of. Without it, children of ranks would live on.
class Guard {
 public:
  static Result<Guard> start();
  /// From now on this group dies with us.
  void watch(pid_t group);
  /// All is over: ends the guard.
  void retire();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd channel_;
};

/// Processes whose parent is this process, zombies included.
std::vector<pid_t> children();
/// Processes of these groups that have a handler for `signal`.
std::vector<pid_t> handlers_of(int signal, const std::vector<pid_t>& groups);

}  // namespace weft::run
