// Job: everything that determines a program. The same on all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/split.h"
#include "program/layout.h"

namespace loom::program {

enum class Precision { fp32, bf16 };

/// Shards are multiples of so many elements: chunks of the gradient norm never straddle ranks.
constexpr int64_t kShardGrain = 1024;

struct Job {
  model::ModelSpec spec;
  Precision precision = Precision::fp32;
  int64_t batch = 1;        // sequences of a microbatch
  int64_t tokens = 1;       // of a sequence
  int64_t targets = 0;      // of a sequence, that the loss is the mean over; 0: all its tokens
  int microbatches = 1;     // of a rank and step
  int world = 1;            // ranks
  int degree = 1;           // p: ranks of a partition group, which share one copy of a stage's state
  int pipeline_degree = 1;  // P: stages
  int tensor_degree = 1;    // T: ranks that share the work on each layer
  std::string placement = "cluster";  // of Layout
  /// Sequence parallelism: between sublayers each tensor rank has an equal part of a microbatch's rows.
  bool divides_rows = false;
  /// Whether each tensor rank is given every sequence of a microbatch. If not, it is given an equal part of
  /// them, and the ranks exchange what they were given.
  bool prescaled_batch = true;
  /// Gradients are added in one balanced tree over all microbatches of the global batch, whatever ranks hold
  /// them. Costs a few more shards of memory.
  bool strict = false;
  int checkpoint_group = 0;  // blocks that are recomputed together; 0: nothing is
  int prefetch = 1;          // compute instructions by which a gather is issued before its use
  int in_flight = 2;         // reduce-scatters not yet waited for
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
  int64_t element_bytes() const { return precision == Precision::bf16 ? 2 : 4; }
  /// Elements of a unit's buffer: a multiple of degree · kShardGrain.
  int64_t padded(const model::Unit& unit) const {
    const int64_t grain = degree * kShardGrain;
    return (unit.elements + grain - 1) / grain * grain;
  }
  int64_t shard(const model::Unit& unit) const { return padded(unit) / degree; }
  double tokens_per_step() const {
    return static_cast<double>(batch) * static_cast<double>(tokens) * microbatches * data_degree();
  }

  double targets_per_step() const {
    return targets > 0
               ? static_cast<double>(batch) * static_cast<double>(targets) * microbatches * data_degree()
               : tokens_per_step();
  }

  /// invalid_argument, naming what is wrong and what would be right.
  Status check() const;
};

/// The number, in the global batch, of microbatch `index` of rank `member` of partition group `group`. Ranks
/// of a group are next to each other, then a rank's microbatches, then groups: the order in which MiCS adds,
/// so that one balanced tree over these numbers is what every layout computes.
inline int64_t microbatch_number(const Job& job, int group, int member, int index) {
  return (static_cast<int64_t>(group) * job.microbatches + index) * job.degree + member;
}

}  // namespace loom::program
