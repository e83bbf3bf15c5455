// Whether calls of a communicator of a GPU return at once, as Weft's flight recorder tells it.
//
// Thread safety: every function.
#pragma once

#include <weft/weft.h>

#include "base/status.h"

namespace loom::engine {

/// ok where later work of a CUDA stream waits for Weft. Errors: unsupported, with the reason, where calls
/// wait instead: a call then returns when the result is there.
Status calls_return_at_once(weftComm_t comm);

}  // namespace loom::engine
