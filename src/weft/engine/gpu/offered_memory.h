// OfferedMemory: what a path of a communicator (stream_path.h) leaves behind when it ends: device memory that
// kernels or copies of the node's ranks reach. Those of this rank may be under way, and so may its peers'.
// Each rank notes on the node's board that its paths have ended. The memory is given back when every peer has
// noted it, or when the peer's process has ended, and no graph is left that may launch kernels.
//
// Nobody waits. What is in use goes to the process's keeper, whose thread looks again as long as it keeps
// something. At the end of the process the driver takes the rest.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/cuda/block_pool.h"
#include "device/cuda/ipc.h"
#include "engine/gpu/node_board.h"

namespace weft::engine {

struct OfferedMemory {
  cuda::Device* device;
  std::shared_ptr<NodeBoard> board;
  std::vector<cuda::Block> blocks;                                 // of device memory, none a part of a slab
  std::vector<std::shared_ptr<cuda::Importer::Mapping>> mappings;  // of peers' memory
  /// Of kernels and copies under way: each says whether they are done, from any thread.
  std::vector<std::function<bool()>> under_way;
  /// That may launch kernels which use the blocks, but no memory of peers.
  std::vector<std::weak_ptr<void>> graphs;
  bool noted = false;  // on the board, that the path has ended
};

/// Gives it back now, or when nobody uses it. Thread safety: any thread. Calls nothing of CUDA.
void give_back_unused(OfferedMemory memory);

}  // namespace weft::engine
