// Job: everything that determines a program. The same on all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fp16.h"
#include "base/round.h"
#include "base/status.h"
#include "model/objectives/objective.h"
#include "model/recipe.h"
#include "model/sequence_parallel.h"
#include "model/split.h"
#include "ops/optimizer.h"
#include "program/layout.h"

namespace loom::program {

/// Of parameters, activations and what ranks exchange of them. Masters, moments, gradients and sums are fp32.
enum class Precision { fp32, bf16, fp16 };

/// As in configs: "fp32", "bf16", "fp16".
constexpr const char* precision_name(Precision precision) {
  return precision == Precision::bf16 ? "bf16" : precision == Precision::fp16 ? "fp16" : "fp32";
}

/// Calls f with a value of the type that elements of this precision are stored in.
template <typename F>
auto with_type(Precision precision, F&& f) {
  switch (precision) {
    case Precision::bf16: return f(bf16{});
    case Precision::fp16: return f(fp16{});
    default: return f(0.0f);
  }
}

/// The order of a stage's forward and backward passes; see schedule.h.
enum class Schedule { simple, one_f_one_b, interleaved };

/// Shards are multiples of so many elements: chunks of the gradient norm never straddle ranks.
constexpr int64_t kShardGrain = 1024;

struct Job {
  model::ModelSpec spec;
  Precision precision = Precision::fp32;
  const ops::Optimizer* optimizer = &ops::kAdamW;
  int64_t batch = 1;        // sequences of a microbatch
  int64_t tokens = 1;       // of a sequence
  bool packed = false;      // a sequence holds several texts, which do not see each other
  int64_t targets = 0;      // of a sequence, that the loss is the mean over; 0: all its tokens
  int microbatches = 1;     // of a rank and step
  int world = 1;            // ranks
  int degree = 1;           // p: ranks of a partition group, which share one copy of a stage's state
  int pipeline_degree = 1;  // P: stages
  int tensor_degree = 1;    // T: ranks that share the work on each layer
  std::string placement = "cluster";  // of Layout
  /// Sequence parallelism: between sublayers each tensor rank has an equal part of a microbatch's rows
  /// (model/sequence_parallel.h).
  bool divides_rows = false;
  /// Whether each tensor rank is given every sequence of a microbatch. If not, it is given an equal part of
  /// them, and the ranks exchange what they were given.
  bool prescaled_batch = true;
  /// The degree is of the optimizer's state and masters alone: parameters are gathered once a step and stay,
  /// and whole gradients are summed before they are reduced, once. More memory, and a microbatch's traffic
  /// for a step's.
  bool shard_optimizer_only = false;
  Schedule schedule = Schedule::one_f_one_b;
  int virtual_stages = 1;  // of a rank; more than 1 with Schedule::interleaved only
  /// Most microbatches that a stage has begun and not finished; 0: the schedule's own number. 1F1B begins up
  /// to this many. simple proceeds in rounds of this many. interleaved uses at most its own number.
  int active_microbatches = 0;
  /// First unit of each of the pipeline_degree · virtual_stages parts of the model, ascending from 0; empty:
  /// equal numbers of units.
  std::vector<int> first_units;
  /// Gradients are added in one balanced tree over all microbatches of the global batch, whatever ranks hold
  /// them. Costs a few more shards of memory.
  bool strict = false;
  int checkpoint_group = 0;  // blocks that are recomputed together; 0: nothing is
  int checkpoint_every = 1;  // of so many blocks the first is recomputed, alone if that is not each of them
  bool offload = false;      // activations that are not needed for long lie in a file
  int loading_horizon = 4;   // compute instructions by which they are loaded before their use
  /// A run on GPUs has as many rows of the head at a time as memory takes (train/gpu_memory.h).
  model::TableTraits table = {};
  int prefetch = 1;   // instructions, of those that hide communication, that a gather is issued ahead
  int in_flight = 2;  // reduce-scatters not yet waited for
  /// Gathered elements that may stay for a later use; the least that works is taken when it is too small.
  int64_t live_elements = 0;

  /// D: ranks that compute different microbatches.
  int data_degree() const { return world / (pipeline_degree * tensor_degree); }
  int replicas() const { return data_degree() / degree; }
  Layout layout() const { return {data_degree(), pipeline_degree, tensor_degree, degree, placement}; }
  /// What each tensor rank holds; sizes and offsets are the same for all.
  std::vector<model::Unit> held_units(int tensor = 0) const {
    return model::units_of(spec, model::TensorRank{tensor_degree, tensor});
  }
  model::Share share(int tensor = 0) const {
    return model::share_of(spec, {tensor_degree, tensor}, divides_rows);
  }
  /// Of what a tensor rank computes. Numbers and places of steps and arrays are the same for all.
  model::RecipeSizes recipe_sizes(int tensor = 0) const {
    model::RecipeSizes sizes = with_type(
        precision, [&]<typename T>(T) { return model::sizes_for<T>(share(tensor), batch, tokens, targets); });
    sizes.table = table;
    sizes.packed = packed;
    return sizes;
  }
  model::Recipes recipes(int tensor = 0) const { return {spec, recipe_sizes(tensor)}; }
  /// Rows of a microbatch that a rank has between units, and sends to other stages.
  int64_t rows() const { return model::own_rows(share(), batch * tokens); }
  int64_t element_bytes() const { return has_masters() ? 2 : 4; }
  /// Whether parameters are rounded copies of fp32 masters, and not these themselves.
  bool has_masters() const { return precision != Precision::fp32; }
  /// Bytes of all that is kept of a parameter: master, gradient and the optimizer's slots in fp32, and the
  /// parameter in the smaller type.
  int64_t state_bytes() const {
    return 8 + 4 * static_cast<int64_t>(optimizer->slots.size()) + (has_masters() ? element_bytes() : 0);
  }
  /// Elements of a unit's buffer: a multiple of degree · kShardGrain.
  int64_t padded(const model::Unit& unit) const { return round_up(unit.elements, degree * kShardGrain); }
  int64_t shard(const model::Unit& unit) const { return padded(unit) / degree; }
  double tokens_per_step() const {
    return static_cast<double>(batch) * static_cast<double>(tokens) * microbatches * data_degree();
  }

  double targets_per_step() const {
    return targets > 0 ? tokens_per_step() / static_cast<double>(tokens) * static_cast<double>(targets)
                       : tokens_per_step();
  }

  /// Rows of a microbatch that the head computes.
  int64_t head_rows() const { return batch * spec.objective().rows_of_sequence(tokens, targets); }
  /// What the model asks for, however it is divided: ModelSpec::flops_per_token().
  double flops_per_token() const { return spec.flops_per_token(tokens, targets); }

  /// Whether blocks read the batch, too: where the texts of a sequence begin, or where its padding begins. In
  /// causal models no token sees padding behind it.
  bool attention_reads_batch() const { return packed || (spec.padding >= 0 && !spec.causal); }

  /// Whether what this unit saves is made again before its backward.
  bool recomputes(int unit) const {
    return checkpoint_group > 0 && unit > 0 && unit <= spec.layers && (unit - 1) % checkpoint_every == 0;
  }

  /// Whether a step sums gradients of the unit over tensor ranks (model::is_summed).
  bool sums_over_tensor_ranks(int unit) const {
    return tensor_degree > 1 && (divides_rows || (spec.head_norms && unit > 0 && unit <= spec.layers));
  }

  /// Whether gradients are summed whole, over a rank's microbatches, before they are reduced.
  bool sums_whole() const { return degree == 1 || shard_optimizer_only; }
  int units() const { return static_cast<int>(spec.layers) + 2; }
  /// Whether the head's part of a tied embedding's gradient is summed separately, and added to the
  /// embedding's own once a step. This is so if they are on two stages. It is so in strict order, too, so
  /// that both cases have the same bits.
  bool ties_apart() const { return spec.tied && (pipeline_degree > 1 || strict); }

  /// invalid_argument, naming what is wrong and what would be right.
  Status check() const;
};

/// A part of the model that one stage computes in one go, without an exchange in between: a virtual stage.
struct Part {
  int number = 0;
  int stage = 0;  // number mod pipeline_degree
  int begin = 0;  // units [begin, end)
  int end = 0;
};

/// All parts of the model, in order. The job must be right.
std::vector<Part> parts_of(const Job& job);
/// Units whose state a stage owns, ascending.
std::vector<int> owned_units(const Job& job, int stage);
/// Besides these, the last stage of several holds a copy of a tied embedding.
bool holds_copy(const Job& job, int stage);

/// The number, in the global batch, of microbatch `index` of rank `member` of partition group `group`. Ranks
/// of a group are next to each other, then a rank's microbatches, then groups: the order in which MiCS adds,
/// so that one balanced tree over these numbers is what every layout computes. Where a rank sums its own
/// first, its microbatches are next to each other.
inline int64_t microbatch_number(const Job& job, int group, int member, int index) {
  if (job.sums_whole()) return (static_cast<int64_t>(group) * job.degree + member) * job.microbatches + index;
  return (static_cast<int64_t>(group) * job.microbatches + index) * job.degree + member;
}

}  // namespace loom::program
