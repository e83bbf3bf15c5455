// What this process holds of the machine's memory, and what there is, by the kernel's own account.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>

namespace loom {

/// Bytes of memory that is in use now: its own, and its share of what it has in common with other processes
/// (a page that k processes have mapped counts 1/k in each). Pages of files do not count. Takes time in
/// proportion to the memory, some milliseconds a gigabyte. 0 where /proc does not say.
int64_t resident_bytes();

/// Bytes of this machine's memory, with what it may put aside on a disk.
int64_t installed_bytes();

/// The most that a process can use: the same, or what its control group may have, where that is less.
int64_t machine_bytes();

}  // namespace loom
