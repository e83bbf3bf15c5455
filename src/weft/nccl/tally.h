// Tally: how many communicators and calls of a process went to Weft and to NCCL, and why. Kept in a small
// file in WEFT_RECORDER_DIR while the process runs, so that weft_info can show it; the file goes with the
// process.
//
// Thread safety: all functions. Counting a call is one addition.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nccl/decision.h"

namespace weft::nccl::tally {

struct Reason {
  uint64_t communicators = 0;  // that went there for it
  std::string text;
};

/// What the file holds of one of the two.
struct Share {
  uint64_t communicators = 0;   // that were created
  uint64_t calls = 0;           // collectives and transfers
  std::vector<Reason> reasons;  // in order of the first communicator; those of kMostReasons
};
inline constexpr size_t kMostReasons = 4;

struct View {
  int pid = 0;
  std::string program;
  bool running = false;  // else it ended without tidying up
  Share weft, nccl;
};

/// Counts a communicator, and logs it if none went that way for that reason before: as a warning where
/// "auto" came to NCCL.
void count_communicator(const Decision& decision);
void count_call(Backend backend);
/// This process's.
View mine();
/// Those of all processes that may be read, by process id.
std::vector<View> all();

}  // namespace weft::nccl::tally
