// What all ranks must have alike before they train together. A rank with another config would make another
// program, and a rank that does not see the folder that the others see would begin at another step: either
// waits for ever, or trains something that nobody asked for.
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

/// Ranks whose CPUs round otherwise step the copies of a shard to other bits, and these drift apart: on all
/// ranks a sentence on who computes with what, and what would make them equal; "" where they are. Errors
/// (invalid_argument), on all ranks: they are not, and `strict` promises the same bits.
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
