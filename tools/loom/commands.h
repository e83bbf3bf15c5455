// The subcommands of `loom`, one function each. They print to standard output and return a Status; only rank
// 0 of a job prints.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace loom::command {

/// "1 rank", "2 ranks"; `many` where that is not `one` with an s.
inline std::string counted(int64_t number, const std::string& one, const std::string& many = "") {
  return fmt::format("{} {}", number, number == 1 ? one : many.empty() ? one + "s" : many);
}

struct TrainOptions {
  std::string config;  // path
  std::vector<std::string> overrides;
};
/// Trains, and leaves log.jsonl, report.html, config.json, checkpoints/ and model/ in run.out. The exit code:
/// 0, or, where SIGTERM or SIGINT has ended the run early, with a checkpoint, what shells and launchers take
/// for the end by it: 143 or 130. A rank that was told by another one only ends with 143.
Result<int> train(const TrainOptions& options);

struct PlanOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string cluster;     // a description, or the name of one that comes with Weft; "": none
  int64_t vocabulary = 0;  // where neither config nor dataset says
  // What is left out is the description's, or else Cluster's default.
  std::optional<int> ranks, ranks_per_node;
  std::optional<double> gflops;        // of a rank; in neither place: measured here
  std::optional<double> intra_gbytes;  // of a rank, GB/s
  std::optional<double> inter_gbytes;  // of a node, GB/s
  std::optional<double> intra_latency_us, inter_latency_us;
  std::optional<double> memory_gbytes;  // of a rank, GB/s
  std::optional<double> tier_gbytes;    // of a rank to the file of offloaded activations, GB/s
  std::optional<int> nodes;             // of ranks_per_node ranks each; not with `ranks`
  std::string engine = "weft", attention = "flash";
  std::string baseline;  // another engine, to compare with; "": none
  std::string sweep;     // "nodes=16:512": numbers of nodes, doubling; "": none
  std::string html;      // a page with charts of the sweep; "": none
  bool json = false, fit = false, what_if = false, instructions = false;
};
/// Prints memory by category and the predicted step, or what else is asked; nothing is allocated.
Status plan(const PlanOptions& options);

struct ReportOptions {
  std::vector<std::string> runs;  // folders, run.out of each
  std::string out = "report.html";
};
/// Writes a page that compares runs by their logs.
Status report(const ReportOptions& options);

struct EvaluateOptions {
  std::string model, data;
  int64_t sequence_length = 0;  // EvaluationOptions::sequence_length
  int64_t batch = 4;
  int64_t batches = 0;    // 0: all of the validation split
  bool baseline = false;  // also what byte pairs alone predict
};
Status evaluate(const EvaluateOptions& options);

struct SampleOptions {
  std::string model, prompt;
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: all
  uint64_t seed = 1;
};
Status sample(const SampleOptions& options);

struct TokenizeOptions {
  std::vector<std::string> files;
  bool labels = false;       // the files hold texts with labels, to classify
  bool completions = false;  // the files hold prompts with completions
  std::string format;        // of these: jsonl, csv or tsv; "": as their names say
  std::string out, tokenizer = "bytes";
  double validation = 0.1;
  int64_t train_vocabulary = 0;  // > 0: train a BPE of so many tokens on the files
};
Status tokenize(const TokenizeOptions& options);

struct ExportOptions {
  std::string checkpoint, out;
  std::string dtype = "auto";  // fp32, bf16 or fp16; auto: as the run saves models
};
/// Makes a whole model of a checkpoint, whatever layout wrote it.
Status export_model(const ExportOptions& options);

/// A checkpoint's folder, a model's, a dataset's, all of which is read, or a safetensors file.
Status inspect(const std::string& path);

}  // namespace loom::command
