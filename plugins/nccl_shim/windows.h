// Windows of Weft's communicators: registered buffers that ncclCommWindowRegister has given a handle.
// Collectives on them are as those on any registered buffer. There is nothing that a kernel could do with
// one.
//
// Thread safety: all functions.
#pragma once

#include "handle.h"

namespace weft::nccl_shim {

/// Whether a window is one of Weft's.
bool is_own_window(nccl::Window_t window);
/// The communicator ends, and with it the registrations of its windows.
void forget_windows(const Handle* handle);

}  // namespace weft::nccl_shim
