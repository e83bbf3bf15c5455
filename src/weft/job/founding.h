// Founding: how communicators come to be: of all ranks of a new job, by a split, or by a shrink.
//
// Thread safety: none is needed for create(); the others may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "engine/run/communicator.h"

namespace weft::job {

using NewComm = Result<std::shared_ptr<engine::Communicator>>;
/// What is left of making a communicator when its place in the order of the calls is taken: it is called
/// once, on any thread, and the parent stays until it has returned.
using PendingComm = std::function<NewComm()>;

/// The communicator of all ranks of a new job; a collective.
NewComm create(const bootstrap::UniqueId& id, int rank, int ranks, engine::CommOptions options);

/// A communicator of those that pass the same color, ordered by (key, rank); null for a negative color. A
/// collective, whose place in the order of the calls is that of this call.
Result<PendingComm> begin_split(engine::Communicator& parent, int color, int key,
                                engine::CommOptions options);
/// This rank's part in a split of which it wants nothing; does not wait.
Status stay_out_of_split(engine::Communicator& parent);
/// A communicator of these ranks, in this order; only they call it, with the same list and tag, and nothing
/// is sent. A tag that such a group has had makes no other one.
Result<PendingComm> begin_group(engine::Communicator& parent, const std::vector<int>& ranks, uint64_t tag,
                                engine::CommOptions options);
/// A communicator without `excluded`; only the others call it, and nothing is sent, so that it works after a
/// failure. Shrinks of a communicator are told apart by the order of these calls.
Result<PendingComm> begin_shrink(engine::Communicator& parent, const std::vector<int>& excluded,
                                 bool abort_first, engine::CommOptions options);

}  // namespace weft::job
