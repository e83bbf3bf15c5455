// Exposures: memory that an operation has in common with peers until it ends: what of its own is registered
// with transports, and what of theirs is mapped or being read.
//
// Thread safety: under the context's lock.
#pragma once

#include <memory>
#include <vector>

#include "engine/run/source_reading.h"
#include "plan/plan.h"
#include "plan/uneven.h"
#include "transport/transport.h"

namespace weft::engine {

class Exposures {
 public:
  /// What of this block of a space is registered with a transport; null: nothing. Good until the next add().
  const transport::RemoteBuffer* find(const transport::Transport& transport, plan::Space space,
                                      const plan::SharedBlock& block) const {
    for (const Exposure& exposure : own_)
      if (exposure.transport == &transport && exposure.space == space && exposure.block == block)
        return &exposure.buffer;
    return nullptr;
  }
  const transport::RemoteBuffer* add(transport::Transport& transport, plan::Space space,
                                     const plan::SharedBlock& block, const transport::RemoteBuffer& buffer) {
    own_.push_back({&transport, space, block, buffer});
    return &own_.back().buffer;
  }
  /// Withdraws all that is registered. `revoke`: peers may still be reading it, and the caller gets it back.
  void withdraw(bool revoke) {
    for (const Exposure& exposure : own_) {
      transport::PeerMapping* const readers = revoke ? exposure.transport->peer_mapping() : nullptr;
      if (readers) readers->revoke(exposure.buffer);
      exposure.transport->unexpose(exposure.buffer);
    }
    own_.clear();
  }

  std::vector<std::shared_ptr<const void>> mappings;  // of peers' memory
  SourceReadings readings;                            // reads of it that its owners help with

 private:
  struct Exposure {
    transport::Transport* transport;
    plan::Space space;
    plan::SharedBlock block;
    transport::RemoteBuffer buffer;
  };
  std::vector<Exposure> own_;
};

}  // namespace weft::engine
