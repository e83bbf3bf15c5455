// The batch of a step, or of an evaluation, from its source into the engine.
//
// Thread safety: one call at a time for an engine.
#pragma once

#include "engine/engine.h"
#include "engine/groups.h"
#include "text/batch_source.h"

namespace loom::train {

/// Fills in this rank's part of the batch of `step`. The first `counted` sequences of the global batch have
/// targets. A rank that fails ends the step of the others. Errors: as BatchSource::read().
Status read_batch(engine::Engine& engine, const engine::Groups& groups, const text::BatchSource& batches,
                  int64_t step, int64_t counted);

}  // namespace loom::train
