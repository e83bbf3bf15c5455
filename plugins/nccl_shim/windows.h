// Windows of Weft's communicators: what ncclCommWindowRegister gives. Collectives on them are as those on any
// registered buffer, and ranks put into them (ncclPutSignal). There is nothing that a kernel could do with
// one.
//
// Thread safety: all functions.
#pragma once

#include "handle.h"

namespace weft::nccl_shim {

/// Whether a window is one of Weft's.
bool is_own_window(nccl::Window_t window);
/// What weft.h calls it; null: there is no such window.
weftWindow_t weft_window(nccl::Window_t window);
/// The communicator ends, and with it its windows.
void forget_windows(const Handle* handle);

}  // namespace weft::nccl_shim
