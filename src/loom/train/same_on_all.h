// Checks what must be equal on all ranks before they train together. A rank with another config would make
// another program. A rank that does not see the others' folder would begin at another step. Then ranks
// either wait for ever, or train something else than the user asked for.
//
// Collectives: all ranks of `comm`, or of the groups, call them. nullptr is one rank.
#pragma once

#include <weft/weft.h>

#include <string>

#include "base/status.h"
#include "engine/groups.h"
#include "ops/tables.h"
#include "train/config.h"

namespace loom::train {

/// Folders of data, models and checkpoints to begin with may have another name on each node, and a rank's
/// threads are its machine's; all else must be rank 0's. Errors (invalid_argument), on all ranks: the first
/// key that is not, with both values.
Status same_config(const Config& config, weftComm_t comm);

/// Ranks whose CPUs round differently step the copies of a shard to other bits, and the copies drift apart.
/// Returns a sentence on all ranks that says which ranks compute with what, and what would make them equal;
/// "" if they are equal. Errors (invalid_argument), on all ranks: they differ, and `strict` promises the
/// same bits.
Result<std::string> same_instructions(const ops::Instructions& own, bool strict, weftComm_t comm);

/// `key` tells data apart by their content. Errors (invalid_data), on all ranks: one has others in its
/// `folder` than rank 0.
Status same_data(const std::string& folder, const std::string& key, weftComm_t comm);

/// What a rank's run begins with.
struct Beginning {
  int64_t step = 0;
  std::string checkpoint;  // its folder; "": none
  std::string manifest;    // its text
};
/// Errors (invalid_data), on all ranks: one begins at another step than rank 0, or with another checkpoint.
Status same_beginning(const Beginning& own, const engine::Groups& groups);

}  // namespace loom::train
