// The verifier: proves that a program computes a training step, whichever generator made it. It executes the
// program symbolically, and knows nothing of generators and passes.
//
// It reports the first thing that is wrong, with its instruction. It proves:
//   structure  instructions name buffers that exist, and come after earlier ones only
//   order      of two uses of a buffer, one of them a write, the first is over before the second begins
//   streams    where lanes are streams, their waits for each other put everything into that order
//   content    nothing is read before it is written
//   memory     buffers that share memory are never in use together, and all lie in the arena
//   result     every forward, loss and backward sees the parameters, input and saved values of its own unit
//              and microbatch; each rank's gradients are summed once over the group for every microbatch and
//              once over the replicas after all of them; the norm has the squares of all of these sums, the
//              mean loss that of every microbatch; the optimizer steps every unit once with the whole sum
//   steps      every pass of a unit has the steps of its recipe, in their order, and the tensor ranks'
//              exchanges where the recipe has them, of the arrays that it names; what reads the batch comes
//              after the microbatch is there
//
// Thread safety: pure functions.
#pragma once

#include "program/job.h"
#include "program/memory.h"
#include "program/program.h"

namespace loom::program {

Status verify(const Job& job, const Program& program, const MemoryPlan& memory);

/// Proves that the programs of all stages of a pipeline, each right on its own, fit together. Every send has
/// a receive of the same unit, microbatch and bytes, in the same order between each two stages. Both ends of
/// a tied embedding add it up once. No stage waits for ever, even if a send ends only when it is received.
Status verify_pipeline(const std::vector<Program>& programs);

}  // namespace loom::program
