// Founding: makes communicators: of all ranks of a new job, by a split, by a shrink, or by growing.
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
/// The second half of making a communicator, after its place in the order of the calls is taken. It is called
/// once, on any thread. The parent lives until it has returned.
using PendingComm = std::function<NewComm()>;

/// The communicator of all ranks of a new job; a collective.
NewComm create(const bootstrap::UniqueId& id, int rank, int ranks, engine::CommOptions options);

/// A communicator of the ranks that pass the same color, ordered by (key, rank); null for a negative color. A
/// collective. Its place in the order of the calls is that of this call.
Result<PendingComm> begin_split(engine::Communicator& parent, int color, int key,
                                engine::CommOptions options);
/// Takes part in a split without getting a communicator; does not wait.
Status stay_out_of_split(engine::Communicator& parent);
/// A communicator of the parent's ranks, which keep their numbers, and of new ranks, which call create() with
/// the same id. A collective of the parent's ranks; one of them passes the id.
Result<PendingComm> begin_grow(engine::Communicator& parent, int ranks, const bootstrap::UniqueId* id,
                               engine::CommOptions options);
/// A communicator of these ranks, in this order. Only they call it, with the same list and tag. Nothing is
/// sent. A tag may be used once for the same list.
Result<PendingComm> begin_group(engine::Communicator& parent, const std::vector<int>& ranks, uint64_t tag,
                                engine::CommOptions options);
/// A communicator without `excluded`. Only the other ranks call it. Nothing is sent, so it works after a
/// failure. The order of these calls tells the shrinks of a communicator apart.
Result<PendingComm> begin_shrink(engine::Communicator& parent, const std::vector<int>& excluded,
                                 bool abort_first, engine::CommOptions options);

}  // namespace weft::job
