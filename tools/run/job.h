// Job: what weft_run was asked for, and what follows from it for each rank: its node, its environment, its
// cores. Pure values; nothing here starts a process.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace weft::run {

/// The command line, checked.
struct Job {
  int ranks = 1;
  int nodes = 1;                     // pretended ones, 1 … ranks
  bool keep_going = false;           // a failed rank does not end the others
  bool label = true;                 // "[rank] " in front of every line
  bool bind = true;                  // pin ranks to cores of their own when there are enough
  double timeout_s = 0;              // 0 = none
  double grace_s = 5;                // from SIGTERM to SIGKILL
  std::vector<std::string> command;  // program and arguments
};

/// Where a rank sits. Ranks fill nodes in blocks whose sizes differ by at most one, larger ones first.
struct Place {
  int node = 0;
  int local_rank = 0;
  int local_size = 1;
};
Place place_of(const Job& job, int rank);

/// How the ranks of the job meet.
struct Meeting {
  std::string root;    // "127.0.0.1:port"
  std::string secret;  // hexadecimal, random
};

/// The variables that rank `rank` gets on top of the launcher's own environment, as "NAME=value".
std::vector<std::string> environment_of(const Job& job, const Meeting& meeting, int rank);

/// The logical CPUs, out of `cpus`, that belong to a rank alone: an equal share, at least one; none when
/// there are fewer CPUs than ranks, or binding is off.
std::vector<int> cpus_of(const Job& job, const std::vector<int>& cpus, int rank);

}  // namespace weft::run
