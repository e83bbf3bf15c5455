// The calls that NCCL makes of functions that it exports itself. They go by name, so where another library
// exports the same names and comes first in the program, they go there.
//
// Why not RTLD_DEEPBIND, which keeps them in NCCL: it also gives NCCL libc's malloc and free in a program
// that has an allocator of its own. What libc allocates with that (realpath, strdup) NCCL would then free
// with libc's.
#pragma once

#include "base/status.h"

namespace weft::nccl {

/// Binds calls of `nccl…` and `pnccl…` functions to the library itself that dlopen() gave as `library`. To be
/// called before the library is used. Errors: unsupported (a processor whose bindings are not known),
/// system_error.
Status keep_own_calls(void* library);

}  // namespace weft::nccl
