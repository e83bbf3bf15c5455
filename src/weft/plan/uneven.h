// Uneven collectives: AllGather, ReduceScatter and AlltoAll whose blocks have sizes and places of their own.
// There is one schedule, which moves each block by the path that suits its size. The tuner has nothing to
// choose: no rank knows what other pairs of an AlltoAll move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace weft::plan {

/// What one rank gives to each rank of its communicator, and gets from it. Everybody gets the same block of
/// an AllGather's input. Places are the rank's own affair: peers name a block by its two ranks (plan.h,
/// Request).
struct Uneven {
  struct Block {
    uint64_t begin = 0, count = 0;  // elements
    friend bool operator==(const Block&, const Block&) = default;
  };
  std::vector<Block> given;  // of the input, by the rank that it is for
  std::vector<Block>
      taken;          // of the output, by the rank that it is from; of a ReduceScatter the own one, for all
  uint64_t hash = 0;  // of what all ranks must agree on: the counts, but for an AlltoAll

  /// The elements that all blocks reach to.
  static uint64_t extent(const std::vector<Block>& blocks);
  friend bool operator==(const Uneven&, const Uneven&) = default;
};

/// `counts` and `begins` of a rank's blocks, n each; without begins they lie one behind the other.
std::vector<Uneven::Block> blocks_of(const uint64_t* counts, const uint64_t* begins, int ranks);
/// The request of a rank: counts[r] is what rank r gives (all_gather) or gets (reduce_scatter), and begins[r]
/// where that lies in the buffer of all blocks.
Request uneven_gather(std::vector<Uneven::Block> blocks, uint32_t element_bytes, int rank);
Request uneven_reduce_scatter(std::vector<Uneven::Block> blocks, uint32_t element_bytes, int rank);
Request uneven_all_to_all(std::vector<Uneven::Block> given, std::vector<Uneven::Block> taken,
                          uint32_t element_bytes);
/// The even call that moves as many elements through this rank as `uneven` does, rounded up: what prices it.
Request even_like(const Request& uneven);

/// The block of a space that a rank shares with a peer, in bytes: what the peer calls 0 there. Of scratch,
/// and of even collectives, all of it, of unknown length.
struct SharedBlock {
  uint64_t begin = 0, bytes = UINT64_MAX;
  friend bool operator==(const SharedBlock&, const SharedBlock&) = default;
};
SharedBlock shared_block(const Request& request, Space space, int peer);

/// Whether the requests of two ranks, or of all ranks, are of one collective. The reason when they are not.
Status check_uneven(const Request& of_a, int a, const Request& of_b, int b);

/// The counts of a rank's call that `peer` has to agree with; the text stands behind the call's name. An
/// AlltoAll has " (2 to rank 3, 1 from rank 3)". Other uneven calls have " (4, 0, 7)": the first 16 ranks'.
/// An even call has "".
std::string describe_counts(const Request& request, int peer);
/// How `peer` describes its counts to `rank` if they agree with this request of `rank`.
std::string describe_counts_of_peer(const Request& request, int rank, int peer);

/// A rank's plan.
Plan make_uneven(const Request& request, const topology::Layout& layout, const Limits& limits, int rank);

}  // namespace weft::plan
