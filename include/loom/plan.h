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

/// What a rank's device reaches of its peak, and its memory. What is 0 is not known.
struct Compute {
  double fp32_flops = 0;          // peak of products in fp32, per second; 0: as Cluster::flops
  double gemm_efficiency = 1;     // part of the peak that large matrix products reach
  double flash_efficiency = 0;    // … that fused attention reaches; 0: as products
  double product_efficiency = 0;  // … that the products of standard attention reach; 0: as products
  double memory_efficiency = 0;   // part of Cluster::memory_bandwidth; 0: kernels that only move memory take
                                  // no time, and the optimizer has all of it
  int multiprocessors = 0;        // over which a product's tiles are dealt out in waves
  double launch_us = 0;           // the least time of a kernel
  double memory_bytes = 0;        // of a device
};

/// An engine that trains on a cluster, as its collectives are known. What is 0 is as Weft's plans or links.
struct EngineRates {
  std::string name;
  double gather_bandwidth = 0;      // of a node while it gathers parameters from others, bytes/s
  double reduce_bandwidth = 0;      // of a node while it reduces gradients with others, bytes/s
  double all_reduce_bandwidth = 0;  // of a node in a long AllReduce, bytes/s
  double all_reduce_latency_us = 0;
  double intra_bandwidth = 0;  // of a rank to others of its node, bytes/s
  double hidden = 1;           // part of a collective's time that computing goes on behind
  int multiprocessors = 0;     // that a collective in flight takes from computing
  int gradient_bits = 32;      // of an element of a gradient that travels
  /// Whether each tensor rank sends its part of a stage's output, which the next stage's gather in their
  /// node.
  bool scatters_transfers = false;
  bool fuses_sums = false;  // whether products add to the sum of gradients as they write
};

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
  /// Of a rank to the file of offloaded activations and back; 0: measured here, and an error for a cluster
  /// that has a name, since this machine's disk is not the cluster's.
  double tier_bandwidth = 0;
  int interfaces = 1;  // of a node, which share inter_bandwidth
  std::string name;    // of a description; "" where there is none
  Compute compute;
  std::vector<EngineRates> engines;  // besides "weft", which is always there
  /// The text that it was read from, of which Weft simulates its plans; "": collectives take what a formula
  /// says.
  std::string description;
};

/// Reads the description of a cluster, in the format of `weft_sim`. These keys count:
/// * nodes, ranks_per_node
/// * `compute`, of a rank: gflops, fp32_gflops, gemm_efficiency, memory_efficiency, flash_efficiency,
///   product_efficiency, multiprocessors, launch_us, memory_gib
/// * tier.gb_per_s
/// * `engines`, an object each by name: gather_gb_per_s, reduce_gb_per_s, all_reduce_gb_per_s,
///   all_reduce_latency_us, intra_gb_per_s, hidden, multiprocessors, gradient_bits; scatters_transfers and
///   fuses_sums, which are 0 or 1
/// * of `machine` the links inside a node: intra.bytes_per_us; the latency is alpha_us plus overhead_us at
///   both ends
/// * of `machine` the links between nodes: nic_bytes_per_us · rails · crossing; the latency of inter
/// * of `machine` memory.copy_large, twice, since a copy reads and writes
/// A rate of links or memory that the file lacks is 0, which plan() refuses. Other keys that it lacks keep
/// Cluster's default. Errors: not_found; invalid_data (bad JSON); invalid_argument, naming the key.
LOOM_API Result<Cluster> read_cluster(const std::string& path);

/// Which engine trains, and how.
struct Assumptions {
  std::string engine = "weft";      // or one of Cluster::engines
  std::string attention = "flash";  // or standard: matrices of scores in memory
  /// Whether the programs are verified, as before they run, and Plan::program and the other texts are made.
  bool listing = true;
};

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

/// How fast a step is, for comparing.
struct Performance {
  double samples_per_second = 0;
  double tokens_per_second = 0;
  /// Of a rank, as published for GPT models: 8 floating-point operations for a parameter and token where
  /// every block is recomputed, else 6.
  double published_flops = 0;
  double mfu = 0;  // of the peak: what the model asks for
  double hfu = 0;  // of the peak: recomputing counts, too
};

/// What a rank's device needs.
struct DeviceMemory {
  double scores_bytes = 0;  // of standard attention, besides the arena
  double needed_bytes = 0;  // by the rank that needs most
  double device_bytes = 0;  // that there are; 0: not known
  bool fits() const { return device_bytes == 0 || needed_bytes <= device_bytes; }
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
  std::vector<Share> computing;  // µs by what a rank computes: products, attention, passes, optimizer
  Performance performance;
  DeviceMemory memory;
  PlannedTier tier;
  Assumptions assumptions;
  std::string collectives;  // where their times come from
  /// Collectives between nodes that Weft's simulator refuses, one of each kind, and why; these take what the
  /// formula says, bytes over the rate of the links.
  std::vector<std::string> unplanned;
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
/// no degree fits memory_limit_mb); invalid_argument for an engine that the cluster does not describe, and
/// for what a cluster that has a name lacks: compute.gflops, or a tier to offload to.
LOOM_API Result<Plan> plan(const Config& config, const Cluster& cluster, int64_t vocabulary = 0,
                           const Assumptions& assumptions = {});

/// A config that fits the device's memory: of all degrees, with and without checkpointing, and with
/// offloading where there is a tier, the one whose step is the shortest.
struct Fitted {
  std::vector<std::string> changes;  // "parallel.tensor_degree=4": overrides; empty: it fits as it is
  Plan plan;
  int tried = 0;
};
/// Errors: as plan(); out_of_memory when none fits, with the least that is needed and the number of nodes of
/// which some fit, if there is one; invalid_argument where the device's memory is not known.
LOOM_API Result<Fitted> fit(const Config& config, const Cluster& cluster, int64_t vocabulary = 0,
                            const Assumptions& assumptions = {});

/// What a change of the cluster or of the config costs.
struct Trouble {
  std::string what;       // "one of the 4 interfaces of a node fails"
  double step_us = 0;     // with it
  double plain_us = 0;    // without it
  std::string instead;    // an override of the config that is better then; "": the config as it is
  double instead_us = 0;  // a step with that
  /// Whether one node has the trouble, but all are simulated with it: both times are upper bounds.
  bool upper_bound = false;
};
/// Predictions for the cluster as it is, and with one change each:
/// * a slow node, a failed interface, half of all interfaces, the other placements
/// * each trait of the engine that matters to the config: what stages send and which ranks send it, how sums
///   of gradients are added, what is hidden, and the bits of gradients
/// One node that is slow or lacks an interface delays all ranks, since every step ends with all of them. All
/// nodes take the rates of that node, which is an upper bound. Alternatives are other degrees of sharding
/// and placements that fit.
LOOM_API Result<std::vector<Trouble>> what_if(const Config& config, const Cluster& cluster,
                                              int64_t vocabulary = 0, const Assumptions& assumptions = {});

}  // namespace loom
