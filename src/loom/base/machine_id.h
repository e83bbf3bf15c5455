// What tells machines apart.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>

namespace loom {

/// The same for all processes on one machine, and for no others: a hash of what its kernel chose at boot, or
/// of its name where the kernel does not say.
uint64_t machine_id();

}  // namespace loom
