// hierarchy: the two halves of which all_to_all is made. Between nodes every rank talks to its rail peers,
// all at once; inside a node ranks read each other's memory. Both work slice by slice, so that the two
// overlap. Private to plan/.
//
// Rank r of node i, with local index l, has in every other node j one rail peer: the rank with local index l
// modulo the size of j. Its origins are the ranks of other nodes whose rail peer it is; nodes may differ in
// size.
#pragma once

#include "plan/at_once.h"
#include "plan/schedule.h"

namespace weft::plan {

/// The blocks of one collective, one for each rank, and how all of them are sliced.
struct Cut {
  Blocks blocks;
  size_t at_once;  // blocks that a rank asks for, and sends, at a time (at_once.h)
  Slices slices;   // of the largest block

  Cut(const Task& task, Blocks blocks);
  Slices of(int rank) const { return slices.of(blocks.bytes(rank)); }
  bool all_at_once() const { return at_once == SIZE_MAX; }
};

/// Brings every rank's block to every rank's output. The own block leaves from `source`. That is an input,
/// which is the whole block and is also copied to output. Or it is the block's place in output, where slice
/// s is ready once step ready[s] is done.
void gather_blocks(const Task& task, Builder& b, const Cut& cut, Region source,
                   std::span<const StepId> ready);

/// What reduce_blocks has done: the last step of each slice, and the steps after which it reads no input any
/// more.
struct Reduced {
  std::vector<StepId> finals;
  std::vector<StepId> last_reads;
};

/// Reduces everyone's own block of all inputs to `result`. Every rank must have reserved as much scratch as
/// the others before the call.
Reduced reduce_blocks(const Task& task, Builder& b, const Cut& cut, Region result);
/// Keeps other ranks of the node away from inputs after their owners' plans have ended. A rank that receives
/// all blocks anyway does not need it: `except`, if it is a rank.
void close_inputs(const Task& task, Builder& b, const Reduced& reduced, int except = -1);

/// The other ranks of this node, starting after the own.
std::vector<int> node_mates(const Task& task);
/// The rail peers of this rank, starting with the next node's.
std::vector<int> rail_peers(const Task& task);
/// The origins of rank `of`, in the order in which they are likely to arrive there.
std::vector<int> origins(const Task& task, int of);

}  // namespace weft::plan
