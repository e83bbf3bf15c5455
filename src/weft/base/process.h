// Whether another process of this machine still runs.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cerrno>

namespace weft {

/// Of a process in the namespace of the calling one. A process counts as long as its parent has not waited
/// for it. Thread safety: any thread.
inline bool process_runs(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

}  // namespace weft
