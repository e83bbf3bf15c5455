// Workspace: the memory on the host in which operations of a context work. It has scratch, copies of buffers
// that peers cannot reach otherwise, blocks to read into, and this rank's mark as an accessor of other
// ranks' memory.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/run/access_gate.h"
#include "engine/run/operation.h"
#include "engine/run/scratch.h"

namespace weft::engine {

class Workspace {
 public:
  /// `local`: what peers of the node are reached by; null: there are none.
  explicit Workspace(transport::Transport* local) : local_(local) {}

  /// Sets an operation's base addresses: of the caller's buffers, of scratch, and of copies where a scalar is
  /// multiplied first or where peers of the node cannot read a buffer.
  Status prepare(Operation& op);
  /// Gives back what prepare() took. Peers of an operation that succeeded are done with what it has exposed;
  /// those of a failed one may stand in the middle of a write.
  void give_back(Operation& op, bool succeeded);
  /// Copies what the operation has put into its staged output to where the caller wants it.
  static void bring_back(const Operation& op);

  /// Memory to read pieces of peers' buffers into; valid until the next call.
  std::byte* bounce(size_t bytes);
  /// The list of a reduction's sources, used again by each.
  std::vector<const void*>& reduce_sources() { return reduce_sources_; }
  Accessor& accessor() { return accessor_; }
  ScratchPool& scratch() { return scratch_; }
  /// Keeps memory that transports may still touch, for as long as the workspace exists.
  void keep(std::vector<std::byte> memory) { kept_.push_back(std::move(memory)); }

 private:
  Status stage(Operation& op, plan::Space space, ScratchPool::Block& block);
  void give_back(const Operation& op, plan::Space space, ScratchPool::Block& block, bool succeeded);

  transport::Transport* const local_;
  ScratchPool scratch_;
  std::vector<std::byte> bounce_;
  std::vector<const void*> reduce_sources_;
  Accessor accessor_;
  std::vector<std::vector<std::byte>> kept_;
};

}  // namespace weft::engine
