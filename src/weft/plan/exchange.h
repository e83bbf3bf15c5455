// exchange: collectives that only move blocks between pairs of ranks, on any layout. `direct` offers them on
// one node, `all_to_all` on several. Private to plan/.
#pragma once

#include "plan/schedule.h"

namespace weft::plan::exchange {

void gather(const Task& task, Builder& builder);
void scatter(const Task& task, Builder& builder);
void all_to_all(const Task& task, Builder& builder);

/// The two ends of a put in slices, each in `lane`. `exposed` says whether the receiver exposes the target's
/// space first, by the notification (open, 0); otherwise every slice must be eager. No slice leaves before
/// `ready` is done.
void put_slices(Builder& builder, int lane, int peer, Region src, Region dst, const Slices& slices,
                bool exposed, StepId ready = kNoStep);
void receive_slices(Builder& builder, int lane, int peer, const Slices& slices);

}  // namespace weft::plan::exchange
