// Plans: memory and time of a config's step on a cluster, computed from the step's program. They allocate no
// memory for a model and send nothing.
//
// Thread safety: any thread may call every function.
#pragma once

#include <loom/config.h>

#include <cstdint>
#include <string>
#include <vector>

namespace loom {

/// A rank's device: the shares of its peak that it reaches, and its memory. 0: not known.
struct Compute {
  double fp32_flops = 0;          // peak of products in fp32, per second; 0: as Cluster::flops
  double gemm_efficiency = 1;     // part of the peak that large matrix products reach
  double flash_efficiency = 0;    // part of the peak that fused attention reaches; 0: as gemm_efficiency
  double product_efficiency = 0;  // part that products of standard attention reach; 0: as gemm_efficiency
  double memory_efficiency = 0;   // part of Cluster::memory_bandwidth; 0: kernels that only move memory take
                                  // no time, and the optimizer has all of it
  int multiprocessors = 0;        // over which a product's tiles are dealt out in waves
  double launch_us = 0;           // the least time of a kernel
  double memory_bytes = 0;        // of a device
};

/// Another library for the collectives of training, by its rates. 0: as Weft's plans or the links.
struct EngineRates {
  std::string name;
  double gather_bandwidth = 0;      // of a node while it gathers parameters from others, bytes/s
  double reduce_bandwidth = 0;      // of a node while it reduces gradients with others, bytes/s
  double all_reduce_bandwidth = 0;  // of a node in a long AllReduce, bytes/s
  double all_reduce_latency_us = 0;
  double intra_bandwidth = 0;  // of a rank to others of its node, bytes/s
  double hidden = 1;           // part of a collective's time that computing can hide
  int multiprocessors = 0;     // that a collective in flight takes from computing
  int gradient_bits = 32;      // of an element of a gradient that is sent
  /// Whether each tensor rank sends its part of a stage's output, and the ranks of the next stage gather the
  /// parts inside their node.
  bool scatters_transfers = false;
  bool fuses_sums = false;  // whether products add to the sum of gradients as they write
};

/// A cluster as Loom models it: ranks on nodes, the rate of a rank, the rates of links.
struct Cluster {
  int ranks = 1;
  int ranks_per_node = 1;
  double flops = 0;                // of a rank's matrix products, per second; 0: measured here
  double memory_bandwidth = 1e10;  // of a rank, bytes/s
  double intra_bandwidth = 1e10;   // of a rank to others of its node, bytes/s
  double inter_bandwidth = 1e9;    // of a node to others, bytes/s
  double intra_latency_us = 2;     // of a hop
  double inter_latency_us = 20;
  /// Of a rank to the file of offloaded activations and back, bytes/s. 0: measured here. For a cluster with a
  /// name 0 is an error, since this machine's disk is not the cluster's.
  double tier_bandwidth = 0;
  int interfaces = 1;  // of a node, which share inter_bandwidth
  std::string name;    // of a description; "" where there is none
  Compute compute;
  std::vector<EngineRates> engines;  // besides "weft", which always exists
  /// The text of the description, by which Weft simulates its plans. "": a formula gives the times of
  /// collectives.
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

/// The engine and the kind of attention that a plan assumes.
struct Assumptions {
  std::string engine = "weft";      // or one of Cluster::engines
  std::string attention = "flash";  // or "standard": matrices of scores in memory
  /// Whether to verify the programs, as before a run, and to make Plan::program and the other texts.
  bool listing = true;
};

/// A named part of a total.
struct Share {
  std::string name;
  double amount = 0;
};

/// A stage of the pipeline. All its ranks have the same figures.
struct PlannedStage {
  std::vector<Share> memory;     // bytes of a rank at the peak, by category
  int64_t peak_bytes = 0;        // their sum
  int64_t peak_instruction = 0;  // the instruction at the peak
  int64_t arena_bytes = 0;       // what a rank allocates
  int64_t tier_bytes = 0;        // of the file that it offloads activations to
  std::vector<Share> times;      // µs of a step, by kind of instruction, waiting for it included
};

/// The bandwidth that offloaded activations need to their file. All 0 without offloading.
struct PlannedTier {
  double bandwidth = 0;         // assumed, bytes/s of a rank
  double kept_us = 0;           // a step if activations stayed in memory
  double hidden_bandwidth = 0;  // least bandwidth at which offloading costs nothing (0.1 % of a step at most)
  double tenth_bandwidth = 0;   // least bandwidth at which it costs a tenth of a step at most
};

/// The speed of a step, in units to compare.
struct Performance {
  double samples_per_second = 0;
  double tokens_per_second = 0;
  /// Of a rank, as published for GPT models: 8 floating-point operations for a parameter and token if every
  /// block is recomputed, else 6.
  double published_flops = 0;
  double mfu = 0;  // part of the peak: the model's operations
  double hfu = 0;  // part of the peak: the model's operations and recomputing
};

/// The memory that a rank's device needs, bytes.
struct DeviceMemory {
  double scores_bytes = 0;  // of standard attention, besides the arena
  double needed_bytes = 0;  // by the rank that needs most
  double device_bytes = 0;  // of the device; 0: not known
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
  double flops = 0;  // assumed rate of a rank's products
  int threads = 0;   // of a rank, with which the rate was measured here; 0: the description has the rate
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
  std::string collectives;  // the source of their times
  /// Collectives between nodes that Weft's simulator refuses, one of each kind, with the reason. A formula
  /// gives their times: bytes over the rate of the links.
  std::vector<std::string> unplanned;
  std::string schedule;   // of the pipeline
  std::string layout;     // the place of each rank, and the groups; "" for a job of one rank
  std::string partition;  // the units of each stage, and the reason; "" for a job of one stage
  std::string profile;    // measurements of each kind of unit, if the config asks for them
  std::string program;    // the lists of instructions, a line each

  /// Bytes of the rank that allocates most.
  int64_t arena_bytes() const {
    int64_t most = 0;
    for (const PlannedStage& stage : stages) most = most < stage.arena_bytes ? stage.arena_bytes : most;
    return most;
  }
};

/// Predicts memory and time of a step. `vocabulary` 0: that of the config or of its dataset. If the dataset
/// exists, it must fit, as in training. Errors: as Training::create() (invalid_argument, not_found,
/// out_of_memory when no degree fits memory_limit_mb); invalid_argument also for an engine that the cluster
/// does not describe, and for a cluster with a name that lacks compute.gflops, or a tier to offload to.
LOOM_API Result<Plan> plan(const Config& config, const Cluster& cluster, int64_t vocabulary = 0,
                           const Assumptions& assumptions = {});

/// The config with the shortest step that fits the device's memory, of all degrees, with and without
/// checkpointing, and with offloading if there is a tier.
struct Fitted {
  std::vector<std::string> changes;  // "parallel.tensor_degree=4": overrides; empty: it fits as it is
  Plan plan;
  int tried = 0;
};
/// Errors: as plan(); out_of_memory if no config fits, with the least memory that is needed and a number of
/// nodes that would do, if there is one; invalid_argument if the device's memory is not known.
LOOM_API Result<Fitted> fit(const Config& config, const Cluster& cluster, int64_t vocabulary = 0,
                            const Assumptions& assumptions = {});

/// The cost of a change of the cluster or of the config.
struct Trouble {
  std::string what;       // "one of the 4 interfaces of a node fails"
  double step_us = 0;     // with it
  double plain_us = 0;    // without it
  std::string instead;    // an override that makes the config better then; "": none does
  double instead_us = 0;  // a step with that override
  /// Whether one node has the trouble, but all nodes are simulated with it: both times are upper bounds.
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
