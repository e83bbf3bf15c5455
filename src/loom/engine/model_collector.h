// How rank 0 writes a whole model whose parts the ranks hold.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>

#include "engine/rank_state.h"

namespace loom::engine {

/// The stage that has a unit, and this rank's shard of its masters, in its arena.
struct HeldMaster {
  int stage = 0;
  const float* master = nullptr;
};

/// Engine::save_model(): `held` tells of each unit. A collective.
Status save_model(const std::string& folder, format::DType dtype, const RankContext& context,
                  const std::function<HeldMaster(int unit)>& held);

}  // namespace loom::engine
