// Groups: what a thread notes down between weftGroupStart and weftGroupEnd.
//
// Thread safety: a group belongs to its thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/communicator.h"

namespace weft::api {

bool in_group();
/// Notes a call down in the open group, or runs it now.
Status run_or_note(const std::shared_ptr<engine::Communicator>& comm, const engine::Call& call);
/// Notes down the creation of a communicator, or does it now. Creations of one group run side by side, so
/// that one thread can create several ranks.
Status create_or_note(std::function<Status()> create);
/// Remembers that a call inside the open group was wrong: the group's end starts nothing and reports it.
void spoil_group(const Status& why);

}  // namespace weft::api
