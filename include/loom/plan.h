// Plans: what a step of a config would take on a cluster, computed from the program of the step; nothing is
// allocated and nobody is asked.
//
// Thread safety: functions; safe from any thread.
#pragma once

#include <loom/config.h>

#include <cstdint>
#include <string>
#include <vector>

namespace loom {

/// A cluster as Loom sees it: ranks on nodes, what a rank computes, what links carry.
struct Cluster {
  int ranks = 1;
  int ranks_per_node = 1;
  double flops = 0;                // of a rank's matrix products, per second; 0: measured here
  double memory_bandwidth = 1e10;  // of a rank, bytes/s
  double intra_bandwidth = 1e10;   // of a rank to others of its node, bytes/s
  double inter_bandwidth = 1e9;    // of a node to others, bytes/s
  double intra_latency_us = 2;     // of a hop
  double inter_latency_us = 20;
  double tier_bandwidth = 0;  // of a rank to the file of offloaded activations and back; 0: measured here
  std::string name;           // of a description; "" where there is none
};

/// What of a description of a cluster, as `weft_sim` reads them, a plan needs: nodes and ranks_per_node;
/// compute.gflops, of a rank; and of `machine` the links inside a node (intra.bytes_per_us; latency is
/// alpha_us plus overhead_us at both ends), those between nodes (nic_bytes_per_us · rails · crossing; inter's
/// latency), and memory.copy_large, twice, since a copy reads and writes. What the file leaves out keeps
/// Cluster's default. Errors: not_found; invalid_data (bad JSON); invalid_argument, naming the key.
LOOM_API Result<Cluster> read_cluster(const std::string& path);

/// A part of something, by name.
struct Share {
  std::string name;
  double amount = 0;
};

/// A stage of the pipeline; every rank of it does the same.
struct PlannedStage {
  std::vector<Share> memory;     // bytes of a rank when most is in use, by category
  int64_t peak_bytes = 0;        // their sum
  int64_t peak_instruction = 0;  // when that is
  int64_t arena_bytes = 0;       // what a rank allocates
  int64_t tier_bytes = 0;        // of the file that it offloads activations to
  std::vector<Share> times;      // µs of a step, by kind of instruction, waiting for it included
};

/// What offloading activations asks of the file that they go to. All 0 where nothing is offloaded.
struct PlannedTier {
  double bandwidth = 0;         // that was reckoned with, bytes/s of a rank
  double kept_us = 0;           // a step if activations stayed in memory
  double hidden_bandwidth = 0;  // from which on offloading costs nothing (0.1 % of a step at most)
  double tenth_bandwidth = 0;   // from which on it costs a tenth of a step at most
};

struct Plan {
  int64_t parameters = 0;
  std::string precision;  // fp32, bf16 or fp16
  int ranks = 1;
  int degree = 1;            // data ranks that share one copy of the state
  int replicas = 1;          // of that state
  int microbatches = 1;      // of a rank and step
  int64_t batch = 0;         // sequences of a microbatch
  int64_t tokens = 0;        // of a sequence
  int64_t instructions = 0;  // of all stages
  int64_t buffers = 0;
  std::vector<PlannedStage> stages;
  double flops = 0;  // the rate that was reckoned with
  int threads = 0;   // of a rank, that it was measured with here; 0: the cluster's description has the rate
  double step_us = 0;
  double compute_us = 0;    // mean over the stages
  double exposed_us = 0;    // waiting for communication and other stages; the mean
  double bubble = 0;        // part of the time until the norm in which a stage does not compute; the mean
  double ideal_bubble = 0;  // if all stages were equal and links free
  double tokens_per_second = 0;
  PlannedTier tier;
  std::string schedule;   // of the pipeline
  std::string layout;     // who is where, and the groups; a job of one rank has none
  std::string partition;  // which units each stage has, and why; a job of one stage has none
  std::string profile;    // what was measured of each kind of unit, where the config asks for it
  std::string program;    // the lists of instructions, a line each

  /// Of the rank that allocates most.
  int64_t arena_bytes() const {
    int64_t most = 0;
    for (const PlannedStage& stage : stages) most = most < stage.arena_bytes ? stage.arena_bytes : most;
    return most;
  }
};

/// `vocabulary` is needed where neither the config nor its dataset says; 0 asks them. A dataset that is there
/// must fit, as in training. Errors: as of a run's beginning (invalid_argument, not_found, out_of_memory when
/// no degree fits memory_limit_mb).
LOOM_API Result<Plan> plan(const Config& config, const Cluster& cluster, int64_t vocabulary = 0);

}  // namespace loom
