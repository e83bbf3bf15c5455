// Partition: which units are computed where. A model's units are cut into contiguous parts, one after the
// other for the stages of a pipeline, so that no part costs much more than the others.
//
// The cost of a part is C = w · memory + (1-w) · time, each as a fraction of the whole model's, w being the
// memory weight. Units that share parameters may be kept together.
//
// Thread safety: values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program/job.h"
#include "program/simulate.h"

namespace loom::program {

/// What a unit costs the stage that has it.
struct UnitCost {
  double time_us = 0;           // forward and backward of a microbatch
  double state_bytes = 0;       // whatever number of microbatches is active
  double activation_bytes = 0;  // for each active microbatch
  double boundary_bytes = 0;    // what crosses, both ways, for each microbatch, if a part ends with this unit
  /// In use while the unit is computed only, so that of a part's units the one with most counts: workspace,
  /// and whole parameters and gradients where ranks have slices of them from step to step.
  double transient_bytes = 0;
};

struct PartitionRequest {
  std::vector<UnitCost> units;
  int parts = 1;
  double memory_weight = 0.8;
  double memory_limit_bytes = 0;              // of a stage's parts together; 0: none
  std::vector<double> besides;                // of each stage: bytes that count towards the limit alone
  std::vector<int> active;                    // of each part: active microbatches
  std::vector<std::pair<int, int>> together;  // first and last of units that must be in one part
};

struct Partition {
  std::vector<int> first_units;  // of each part
  std::vector<double> costs;     // of each part
  double largest = 0;            // of the costs
  double crossing_bytes = 0;     // for each microbatch, over all cuts
  bool proven = false;           // whether the algorithm knows that none is better by its measure
};

/// A part a stage. Exact, by dynamic programming in O(parts · units²): the least largest cost; of those
/// partitions that have it, the least crossing bytes; of those, the least sum of squared costs. Errors:
/// invalid_argument (more parts than can be cut, or more units than a GiB of costs is for), out_of_memory (no
/// partition keeps every part below the limit), with what is possible.
Result<Partition> partition_exactly(const PartitionRequest& request);

/// For parts that are dealt out to stages in turn: part k belongs to stage k mod `stages`. The cost of a
/// stage is the sum of its parts' costs. Minimizes the largest cost of a stage, then the bytes between
/// stages, then the sum of the stages' squared costs. A branch-and-bound search begins with
/// partition_exactly() and moves its cuts. It is exact unless it has tried 4 million parts; then the result
/// is the best so far, and not `proven`. Errors: as partition_exactly(); out_of_memory also when no
/// partition that was tried keeps the stages below the limit.
Result<Partition> partition_interleaved(const PartitionRequest& request, int stages);

/// SMP's algorithm (Karakus et al., "Amazon SageMaker Model Parallelism", arXiv 2111.05972, 2021). The
/// tree's root has the embedding, the list of blocks and the head. The children of a node are cut into
/// contiguous segments so that the largest cost is least. The d'Hondt method gives the node's stages to
/// segments: one by one, to the largest cost/(seats+1). A segment with several stages is cut again below. A
/// segment without a stage joins the one before it. Ignores the limit.
Result<Partition> partition_by_tree(const PartitionRequest& request);

/// A partition that somebody chose, with its costs. Errors: invalid_argument, when it is none or separates
/// units that must be together.
Result<Partition> partition_by_hand(const PartitionRequest& request, std::vector<int> first_units);

/// Whether a part may begin with this unit.
bool may_cut(const PartitionRequest& request, int before);
/// Bytes of units [begin, end) as the part of that number: state and activations, which add up, …
double lasting_bytes_of(const PartitionRequest& request, int part, int begin, int end);
/// … what is in use for one of them at a time, …
double transient_bytes_of(const PartitionRequest& request, int begin, int end);
/// … and both.
double memory_of(const PartitionRequest& request, int part, int begin, int end);
double time_of(const PartitionRequest& request, int begin, int end);
/// C of units [begin, end) as the part of that number.
double cost_of(const PartitionRequest& request, int part, int begin, int end);

/// What costs are fractions of: the whole model's, as one part with one active microbatch, which no cut
/// changes.
struct WholeCost {
  explicit WholeCost(const PartitionRequest& request);
  double of(double part_bytes, double part_us) const;

  double bytes = 0, time_us = 0, weight = 0;
};

/// What profiling has measured of a unit, on a rank that has it whole. Memory is a part of what is planned.
struct MeasuredUnit {
  double us = 0;         // forward and backward of a microbatch
  double state = 1;      // parameters, moments and gradients that were written
  double saved = 1;      // what forward wrote for backward, its output included
  double workspace = 1;  // what both wrote besides
};
/// Of each unit; empty where nothing was measured.
using MeasuredUnits = std::vector<MeasuredUnit>;

/// Forward and backward of a unit for a microbatch, by the model of the simulator.
double modelled_us(const Job& job, const Machine& machine, int unit);

/// A partition request for a job: parts, active microbatches, and costs: times by the model of the simulator
/// and memory as planned, or both as they were measured; no activations where they are offloaded. A tied head
/// is charged with its copy of the embedding.
PartitionRequest partition_request(const Job& job, const Machine& machine,
                                   const MeasuredUnits& measured = {});

/// A line a part, with stage, units, cost, time and memory, and a sentence that says how good it is.
std::string to_string(const Job& job, const PartitionRequest& request, const Partition& partition);

}  // namespace loom::program
