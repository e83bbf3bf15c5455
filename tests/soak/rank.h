// What one process does in a round: each of its ranks, in a thread of its own, follows the round's script and
// checks every result.
#pragma once

#include "board.h"
#include "round.h"

namespace soak {

/// Runs the ranks of `process`, and reports to the board what was wrong. A victim does not return.
void run_ranks(Board& board, const Round& round, int process);

}  // namespace soak
