// Plans for the copy engines of GPUs (engine/gpu/copy_path.h): copies and notifications in one lane, by which
// no rank touches a buffer of another rank's caller. Each rank copies what the others need into its scratch,
// the *staging*, tells them, and they copy it from there. Data that is longer goes in rounds.
//
//   AllGather, Gather   a rank stages its input
//   Broadcast           the root stages its input
//   Scatter, AlltoAll   a rank stages a block for each reader
//
// Of a round:
//   wait until the readers of the round before are done; stage; signal the readers; wait for the writers;
//   copy their data; signal them that it is done
//
// A plan ends with the waits for its readers. What follows it in a stream need not wait for them, as long as
// it leaves the staging alone.
//
// Thread safety: pure functions.
#pragma once

#include "plan/plan.h"

namespace weft::plan {

inline constexpr char kStagedCopies[] = "copy_engines";
inline constexpr uint64_t kMostStagedRounds = 32;

/// Whether there is such a plan for ranks of one node with so many bytes of staging each. Errors:
/// unsupported, with the reason; the same on every rank.
Status staged_copies_fit(const Request& request, int ranks, uint64_t staging_bytes);
/// Rounds of a request that fits.
uint64_t staged_rounds(const Request& request, int ranks, uint64_t staging_bytes);
/// The plan of one rank for a request that fits.
Plan make_staged_copies(const Request& request, int ranks, int rank, uint64_t staging_bytes);

}  // namespace weft::plan
