// Keeps NCCL's calls of functions that it exports inside NCCL. The dynamic linker binds these calls by name:
// to another library, if that exports the same names and comes first in the program.
//
// RTLD_DEEPBIND would keep them inside, too. But it would also bind NCCL to libc's free() in a program with
// an allocator of its own. NCCL would then free by libc what libc has allocated by that allocator (realpath,
// strdup).
#pragma once

#include "base/status.h"

namespace weft::nccl {

/// Binds calls of `nccl…` and `pnccl…` functions to the library itself that dlopen() gave as `library`. To be
/// called before the library is used. Errors: unsupported (a processor whose bindings are not known),
/// system_error.
Status keep_own_calls(void* library);

}  // namespace weft::nccl
