// The interpreter: carries out the steps of one operation's plan as far as they can go now. It never blocks:
// a step that must wait leaves its lane where it is, and the next call tries again.
//
// Thread safety: under the context's lock.
#pragma once

#include "base/status.h"
#include "engine/context/context_lock.h"
#include "engine/run/operation.h"

namespace weft::engine {

/// Kind of an envelope, as the interpreter writes and the context reads it.
enum class MessageKind : uint8_t {
  data,           // payload for `space` + `offset` of the receiver
  signal,         // a bare notification
  expose,         // payload is the RemoteBuffer of the sender's `space`
  expose_staged,  // … the RemoteBuffer of the pinned memory in which an operation on GPU memory has it
  expose_device,  // … the cuda::SharedMemory
};

/// Starts the operation's bookkeeping: nothing has arrived, every lane is at its first step. The parts are
/// for brief.h, which does without the second.
void reset_progress(Operation& op);
void reset_arrivals(Operation& op);
void reset_steps(Operation& op);
/// Runs every lane until it has to wait, or has had its turn (long copies and reductions are cut, so that the
/// network is looked at in between). True if anything moved.
Result<bool> advance(Operation& op) WEFT_REQUIRES(context_lock);
/// Whether every step is done.
bool complete(const Operation& op);
/// The peers (ranks of the communicator) that the operation is waiting for right now: for their
/// notifications, for room to send to them, or for a put to them that is under way.
std::vector<int> awaited_peers(const Operation& op);
/// Whether an operation has yet to hear from this rank of the world, or to send to it.
bool deals_with(const Operation& op, int peer);

}  // namespace weft::engine
