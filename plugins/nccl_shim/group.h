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
/// Refuses a call that belongs into a group: the end of an open one starts nothing of Weft's, and reports
/// `why`, too. What the group holds of NCCL's goes on.
nccl::Result_t refuse(const Status& why);
/// Whether the thread's group has been opened there.
bool in_group_of(Backend backend);
/// A communicator that the group's end may turn out unable to make: *out is then set to NULL, as NCCL does.
void note_creation(Comm_t* out, Handle* handle);
/// Whether the thread's group is to make it.
bool is_being_made(const Handle* handle);
/// A communicator of Weft that `end` ends or finalizes when the group is over, whatever comes of the group.
void note_end(weftResult_t (*end)(weftComm_t), weftComm_t comm);
/// An abort was quicker.
void forget_ends(weftComm_t comm);

}  // namespace weft::nccl_shim
