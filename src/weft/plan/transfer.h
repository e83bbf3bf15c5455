// transfer: moving a run of bytes to a peer by puts, in slices, with the handshake that long ones need. The
// four calls that two generators make must pair up: offer with accept, put_slices with receive_slices, each
// with the same bytes and phase. Private to plan/.
#pragma once

#include <span>

#include "plan/schedule.h"

namespace weft::plan {

/// Receiver: exposes `own` to `peer` if `bytes` from there are too long to go eagerly.
void offer(const Task& task, Builder& b, int lane, int peer, uint64_t bytes, Space own,
           Phase phase = Phase::open);
/// Sender: waits for that.
void accept(const Task& task, Builder& b, int lane, int peer, uint64_t bytes, Space theirs,
            Phase phase = Phase::open);

/// Puts all slices; none leaves before all of `ready` are done. The last one, of a transfer that has any.
StepId put_slices(Builder& b, int lane, int peer, Region src, Region dst, const Slices& slices,
                  Phase phase = Phase::data, std::span<const StepId> ready = {});
/// Waits for all slices.
void receive_slices(Builder& b, int lane, int peer, const Slices& slices, Phase phase = Phase::data);

/// A lane for what can be done beside what is in `lane`, or will be: another one, but where a whole message
/// of `bytes` goes to `peer` inside the node without asking. Nobody waits for that, and a plan of one lane is
/// executed by a quicker interpreter (engine/run/fast_steps.h).
int lane_beside(const Task& task, Builder& b, int lane, int peer, uint64_t bytes);

}  // namespace weft::plan
