// The interpreter of brief plans (Prepared::brief): short messages inside a node, copies and reductions of
// the rank's own memory, one after the other. All that interpreter.h has to look for and such plans never
// have is left out: handles, devices, traces, lanes that wait for one another, turns.
//
// It keeps in the operation which step is next and what has arrived, no more. What interpreter.h keeps
// besides follows from that, so an operation that turns out not to be brief after all goes on there.
//
// Thread safety: under the context's lock.
#pragma once

#include "base/status.h"
#include "engine/run/operation.h"

namespace weft::engine {

enum class BriefOutcome : uint8_t { done, waits, failed };

/// From the first step on. What has arrived is at zero: reset_arrivals() or the operation's last waits saw to
/// that.
inline void begin_brief(Operation& op) { op.lanes[0].next = 0; }
/// Goes on until the last step, or one that has to wait: for a message, or for room to send (then
/// op.may_move). `trouble` is why it failed.
BriefOutcome advance_brief(Operation& op, Status& trouble);
/// One look at what peers have sent. What is not for this operation, or not short, gets its context. Returns
/// the number of events.
int receive_brief(Operation& op);
/// From now on the operation is interpreter.h's.
void hand_over(Operation& op);

}  // namespace weft::engine
