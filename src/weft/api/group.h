// Groups: what a thread notes down between weftGroupStart and weftGroupEnd.
//
// Thread safety: a group belongs to its thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "api/fallback.h"
#include "base/status.h"
#include "engine/run/group_run.h"

namespace weft::api {

/// How many groups of this thread are open. Every call reads it: found without a call of the dynamic linker.
[[gnu::tls_model("initial-exec")]] extern thread_local int t_group_depth;
inline bool in_group() { return t_group_depth > 0; }
void note(const std::shared_ptr<engine::Communicator>& comm, const engine::Call& call);
/// Notes a call down in the open group, or runs it now.
inline Status run_or_note(const std::shared_ptr<engine::Communicator>& comm, const engine::Call& call) {
  if (!in_group()) [[likely]]
    return comm->run(call);
  note(comm, call);
  return {};
}
/// The same for a call that NCCL does.
Status run_or_note(const NcclCall& call);
/// A communicator to be created: how, or what to do instead where the group that holds it starts nothing.
struct Creation {
  engine::Communicator* parent;  // whose calls it is one of; null: of none
  std::function<Status()> create;
  std::function<void(const Status& why)> cancel;
};
/// Notes down the creation of a communicator, or does it now. Creations of one group run side by side, so
/// that one thread can create several ranks; those of one parent in the order of the calls, since its ranks
/// match them by that.
Status create_or_note(Creation creation);
/// Remembers that a call inside the open group was wrong: the group's end starts nothing and reports it.
void spoil_group(const Status& why);

}  // namespace weft::api
