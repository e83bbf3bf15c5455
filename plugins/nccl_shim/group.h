// Groups over two libraries: a group is opened in Weft or in NCCL when its first call goes there, and the
// outermost ncclGroupEnd ends those that are open.
//
// Thread safety: a group belongs to its thread.
#pragma once

#include "handle.h"

namespace weft::nccl_shim {

/// Before a call that may be grouped goes to `backend`: opens the group there, if the thread is in one.
Status join_group(Backend backend);
bool in_group();
/// A communicator that the group's end may turn out unable to make: *out is then set to NULL, as NCCL does.
void note_creation(Comm_t* out, Handle* handle);

}  // namespace weft::nccl_shim
