// The generator of a stage's part of a training step with sharded data parallelism, and the passes that turn
// its plain list into one that is fast and fits. MiCS: Zhang et al., "MiCS: Near-linear Scaling for Training
// Gigantic Model on Public Cloud", 2022.
//
// Thread safety: pure functions.
#pragma once

#include "model/recipe.h"
#include "program/job.h"
#include "program/program.h"

namespace loom::program {

/// The whole way: generate(), the passes in their order, connect().
Result<Program> make_program(const Job& job, int stage = 0);

/// Forward passes and losses only. Its persistent buffers are those of make_program(), in the same order, so
/// both can be placed in one arena.
Result<Program> make_evaluation(const Job& job, int stage = 0);

/// The forward pass of microbatch 0, and the logits of one row of it. Persistent buffers are the same, too.
Result<Program> make_logits(const Job& job, int stage = 0);

enum class Purpose { step, evaluation, logits };
/// The programs of all stages.
Result<std::vector<Program>> make_programs(const Job& job, Purpose purpose = Purpose::step);

/// Bytes of the buffer for sums of squares, one sum for each kShardGrain elements. It holds a rank's own
/// sums, and those of all ranks of one copy of the model. Each rank has as many as the stage with most of
/// them.
int64_t norms_bytes(const Job& job);

/// Numbers that ranks tell each other of each microbatch: its loss, and how many of its sequences were right.
constexpr int kToldOfMicrobatch = 2;
/// Those behind the microbatches'.
constexpr int kToldBeside = 3;
/// Of the buffer for what a rank tells, and then for what all ranks told.
int64_t told_bytes(const Job& job);

/// Bytes of the buffers that units share.
model::BufferSizes sizes_of(const Job& job);

/// A step in its plainest order. Units that are sharded are not gathered yet: instructions use a placeholder
/// buffer "whole UNIT" for them. Where a stage needs what another one makes, it receives it one pass early.
/// Gradients are reduce-scattered in the group after each microbatch, and all-reduced over the replicas only
/// after the last one.
Program generate(const Job& job, int stage);

/// Activation checkpointing: of each group of `group` blocks only the input is kept; the group's forward is
/// done again before its backward. Groups end where a part of a pipeline ends. With `checkpoint_every` above
/// 1 the blocks between those keep what they save.
void checkpoint_activations(const Job& job, Program& program);

/// Activation offloading: what forward leaves for a backward that is more than `loading_horizon` compute
/// instructions away lies in the tier meanwhile.
void offload_activations(const Job& job, Program& program);

/// Puts gathers where a unit is used and not there, and keeps units as long as `live_elements` allow, giving
/// up the one whose next use is farthest (Belady's rule: the future is known). What would be asked for again
/// as soon as it is given up, for `prefetch`, stays.
void insert_gathers(const Job& job, Program& program);

/// Gives instructions that compute the steps of their unit's recipe. Where tensor ranks share the work, an
/// instruction becomes several, with the ranks' exchanges between them. Comes after passes that move whole
/// units' instructions.
void split_units(const Job& job, Program& program);

/// Moves each gather up past `prefetch` instructions that hide communication.
void prefetch(int distance, Program& program);

/// Moves what waits for reductions down past `distance` backward instructions.
void postpone_waits(int distance, Program& program);

/// Gives communication its lanes, and derives `after` from the buffers. At most `in_flight`
/// reductions are left unwaited for when a gradient is computed, and a few sends when the next one begins, so
/// that their buffers can be used again.
void connect(int in_flight, Program& program);

/// Finds the waits between streams that `after` needs, with a stream for each lane, and lane 0 for what is
/// computed. Whatever is issued after an instruction comes after all that this one comes after, and lanes
/// come after what was computed before. connect() calls it.
void find_stream_waits(Program& program);

}  // namespace loom::program
