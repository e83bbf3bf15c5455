// The verifier: proves a set of plans, one per rank, by executing them symbolically. It looks at plans only,
// and knows nothing of how they were made.
//
// What it proves, in this order; the first thing that is wrong is reported with its rank, step and bytes:
//   structure   Ids, lanes and regions are in range. Every kind of step keeps its rules. Tags are dense, and
//               each is sent and awaited exactly once.
//   progress    The plans end, whatever the order in which notifications arrive.
//   exposure    No rank touches a peer's memory before an earlier wait has learned its handle.
//   races       Of two accesses to the same bytes, one of them a write, one happens before the other. No
//               rank touches another rank's memory after that rank's plan may have ended.
//   result      Every output byte holds what it must, and nothing was read that had not been written. In
//               strict order, a sum is one reduction of all ranks' raw inputs in rank order.
//
// An eager put may land at any time from the beginning of the receiver's plan until its wait. Memory is
// followed in intervals, so the cost depends on the number of steps, not of bytes.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "plan/plan.h"

namespace weft::plan {

/// `plans[r]` is rank r's. In place, every rank that has both an input and an output has them in the same
/// memory.
Status verify(std::span<const Plan> plans, const topology::Layout& layout, const Limits& limits,
              bool in_place);

/// A send and the receive that it meets.
Status verify_pair(const Plan& send, const Plan& recv, const topology::Layout& layout, const Limits& limits);

}  // namespace weft::plan
