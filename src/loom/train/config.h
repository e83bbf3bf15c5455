// Config: everything that a training run is told. Written as JSON with sections, "optimizer":
// {"learning_rate": 3e-4}, or on the command line as --optimizer.learning_rate=3e-4.
//
// Thread safety: values; pure functions but for reading files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/json_file.h"
#include "model/spec.h"
#include "program/partition.h"
#include "train/checkpointing.h"
#include "train/loss_scale.h"

namespace loom::train {

/// A whole number for which a config may say "auto": 0 here.
struct OrAuto {
  int64_t value = 0;
  constexpr OrAuto(int64_t number = 0) : value(number) {}
  constexpr operator int64_t() const { return value; }
};

struct Config {
  // What is 0, empty or null here is left to model.from, or to the default that is named.
  struct Model {
    std::string family;      // gpt2
    std::string task;        // causal, masked or classification; "": the family's, or that of the data
    std::string from;        // folder of a Hugging Face model to begin with; "" begins with random weights
    int64_t vocabulary = 0;  // 0: the dataset's
    int64_t context = 0;     // 0: data.sequence_length
    int64_t width = 0;       // 256
    int64_t layers = 0;      // 4
    int64_t heads = 0;       // 4
    int64_t key_value_heads = 0;  // as many as heads
    int64_t feed_forward = 0;     // 4 · width, or 8/3 · width of families with a gate
    std::string activation;       // the family's
    /// Of the embedding, what blocks add, attention, and classification heads: 0, or as model.from has it.
    std::optional<double> dropout;
    std::optional<bool> tied;  // whether the head is the embedding's matrix: as the family does
  } model;
  struct Data {
    std::string folder;  // made by `loom tokenize`
    int64_t sequence_length = 128;
    int64_t global_batch = 16;  // sequences of a step, over all ranks
    int64_t microbatch = 0;     // sequences that are computed together; 0: a rank's whole share
    bool packing = false;       // several texts in a sequence, of a dataset of completions
  } data;
  struct Parallel {
    OrAuto sharded_data_parallel_degree = 1;  // 0: the smallest that fits memory_limit_mb
    bool shard_optimizer_state = false;       // parameters and gradients stay whole
    int64_t pipeline_degree = 1;              // P: stages
    int64_t tensor_degree = 1;                // T: ranks that share the work on each layer
    std::string optimize = "memory";          // tensor ranks divide rows between sublayers; speed: not
    bool prescaled_batch = false;             // whether each tensor rank reads its group's whole batch
    std::string pipeline = "1f1b";            // or simple, interleaved
    int64_t virtual_stages = 2;               // of a rank, interleaved
    int64_t active_microbatches =
        0;                           // most that are begun and not finished (Job); 0: what the schedule wants
    std::string partition = "auto";  // or tree, even, or the first units of the parts: "0,5,9"
    /// A tied matrix: copies at both ends of a pipeline, or together, no cut between them; auto is copies,
    /// but not where `partition` has the first units.
    std::string tied = "auto";
    double memory_weight = 0.8;         // of memory against time in the partition; see parse_config()
    bool profile = false;               // measure the units' times before they are divided
    std::string placement = "cluster";  // or spread, or D, P and T in any order
    int64_t memory_limit_mb = 0;        // of a rank's arena; 0: none
    int64_t prefetch = 1;
    int64_t in_flight = 2;
    int64_t live_parameters = 0;             // elements of gathered units that may stay for their next use
    Checkpointing activation_checkpointing;  // which blocks are computed again in backward
    bool activation_offloading = false;      // to a file, what is not needed for long
    int64_t activation_loading_horizon = 4;  // compute instructions that it is loaded ahead
    std::string offload_folder;              // "": TMPDIR, or /var/tmp
    std::string precision = "fp32";          // or bf16, fp16: of parameters and activations
    bool strict = false;                     // the same bits on every layout
    std::string device = "cpu";              // or cuda, or auto: GPUs where every rank has one
    std::string attention = "own";           // of GPUs; or cudnn, or auto: cuDNN where it can
    int64_t threads = 0;                     // of a rank; 0: its machine's CPUs over the ranks there
  } parallel;
  struct Optimizer {
    double learning_rate = 6e-4;
    double final_rate = 6e-5;  // at most learning_rate
    int64_t warmup_steps = 20;
    std::string schedule = "cosine";  // cosine, linear or constant after the warmup
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1;  // 0: none
  } optimizer;
  LossScale loss_scale;  // of fp16
  struct Run {
    std::string out = "loom-out";
    int64_t steps = 100;
    int64_t seed = 1;
    int64_t evaluate_every = 0;        // steps; 0: at the end only
    int64_t evaluation_steps = 8;      // batches of an evaluation
    int64_t checkpoint_every = 0;      // steps; 0: at the end only
    int64_t keep = 2;                  // checkpoints
    bool checkpoint_optimizer = true;  // whether checkpoints have the optimizer's state, too
    int64_t save_model_every = 0;      // steps; 0: at the end only
    std::string model_dtype = "auto";  // of saved models; auto: model.from's, or fp32 without one
    bool resume = true;                // from run.out's newest checkpoint; false: it must have none
    std::string resume_from;   // folder of a checkpoint to begin with, where there is none of this run
    int64_t trace_step = 0;    // whose timeline the report has, from 1; 0: the last
    int64_t trace_ranks = 64;  // whose timelines those are, from rank 0 on; 0: none
    bool remeasure = false;    // the machine's rates, in place of those in the cache
  } run;
};

/// `overrides` are "section.key=value". Where parallel.memory_weight is left out, parallel.optimize gives it:
/// SMP's 0.8 for memory and 0.2 for speed; a tenth of learning_rate is a final_rate that is left out. Errors
/// (invalid_argument, invalid_data): an unknown key, with the nearest right one; a value of another type; a
/// value out of range.
Result<Config> parse_config(const format::Json& json, std::span<const std::string> overrides);
/// What a checkpoint keeps of its run's config. It may be of an earlier version, which took values that are
/// out of range now. Errors: as above, without the last.
Result<Config> stored_config(const format::Json& json);
/// How these stand in a config, found by the JSON library.
void to_json(format::Json& json, const OrAuto& value);
void to_json(format::Json& json, const Checkpointing& value);
/// With every key. parse_config() of it gives the same config.
format::Json to_json(const Config& config);

/// What the model is trained for. Reads model.from's config.json, and looks at what data.folder holds.
Result<model::Task> task_of(const Config& config);

/// The model, with the dataset's vocabulary if the config leaves that open. Reads model.from's config.json.
/// `labels` and `padding` are the dataset's; -1: no padding. Errors (invalid_argument): a value that cannot
/// be, or is given and is another one in model.from; a vocabulary below the dataset's.
Result<model::ModelSpec> spec_of(const Config& config, int64_t dataset_vocabulary, int64_t labels = 0,
                                 int32_t padding = -1);
/// For so many ranks. Chooses the degree when the config leaves it open, and of partitions that are chosen,
/// too, one that fits the memory limit. Errors: invalid_argument, naming what does not divide; out_of_memory
/// when no degree fits.
///
/// `measured` is of the units, for the partition; empty: by the model of the simulator. `table` is of
/// the ranks' devices.
Result<program::Job> job_of(const Config& config, const model::ModelSpec& spec, int world,
                            const program::MeasuredUnits& measured = {},
                            const model::TableTraits& table = {});
/// parallel.precision.
program::Precision precision_of(const Config& config);
/// Whether a parallel.partition itself says where parts begin.
bool by_hand(const std::string& partition);
/// How the config divides the job's model, a pipeline, whatever memory a rank has. Errors: those of
/// program/partition.h.
Result<program::Partition> partition_of(const Config& config, const program::Job& job,
                                        const program::MeasuredUnits& measured = {});
/// What partition_of() asks for: for showing why.
program::PartitionRequest partition_request(const Config& config, const program::Job& job,
                                            const program::MeasuredUnits& measured = {});
/// The config with what was left open filled in: the model's sizes and choices, the microbatch, the degree of
/// sharding, the cuts of a pipeline, a rank's threads. On as many ranks it is the same run. `spec` and `job`
/// are what spec_of() and job_of() made of the config.
Config resolved(const Config& config, const model::ModelSpec& spec, const program::Job& job, int threads);
/// The most bytes of any stage's arena. Errors: as make_program().
Result<int64_t> arena_bytes(const program::Job& job);

/// Learning rate of a step, counted from 0: linear warmup, then the schedule down to final_rate at the last
/// step.
double learning_rate(const Config& config, int64_t step);

}  // namespace loom::train
