// How the ranks write a checkpoint together: each its part of the state, then rank 0 the manifest.
//
// Thread safety: one thread.
#pragma once

#include <functional>

#include "engine/engine.h"
#include "train/run_folder.h"

namespace loom::train {

/// Writes the checkpoint of `step`. `manifest` gives the manifest's content besides files and layouts; only
/// rank 0 calls it. All ranks call `written` when the state is being written to the disk. A collective.
/// Errors: as Checkpoints and Engine::save_state().
Status write_checkpoint(const engine::Engine& engine, const engine::Groups& groups, RunFolder& folder,
                        uint64_t step, bool optimizer, const std::function<format::Json()>& manifest,
                        const std::function<Status()>& written);

}  // namespace loom::train
