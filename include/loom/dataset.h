// Datasets: folders of tokens, made once from text files and read by all ranks.
// docs/reference/file-formats.md describes the files.
//
// Thread safety: functions; safe from any thread, for different folders.
#pragma once

#include <loom/status.h>

#include <cstdint>
#include <string>
#include <vector>

namespace loom {

struct DatasetOptions {
  /// "bytes", a tokenizer.json, or a folder of Hugging Face's files.
  std::string tokenizer = "bytes";
  /// > 0: train a byte-level BPE of so many tokens on the files, instead.
  int64_t train_vocabulary = 0;
  /// Held out, in [0, 1): of every file of text; of all texts with labels, or prompts.
  double validation_fraction = 0.1;
  int threads = 0;  // 0: as many as this process has CPUs for
  /// The files hold a text and its label a line: data for a model that classifies. Where `tokenizer` is the
  /// folder of such a model, labels are names or numbers of its classes, in its order.
  bool labels = false;
  /// The files hold texts of which parts are learned: a prompt and its completion, or segments of a chat.
  /// Data for a causal model.
  bool completions = false;
  /// The format of files with labels or completions: "jsonl", "csv" or "tsv"; empty: as their names say
  /// (others are TSV).
  std::string format = {};
};

struct DatasetSummary {
  uint64_t train_tokens = 0;
  uint64_t validation_tokens = 0;
  uint64_t train_bytes = 0;  // of text
  uint64_t validation_bytes = 0;
  std::string tokenizer;   // "bytes", or "byte-level BPE of 50257 tokens"
  int64_t vocabulary = 0;  // its tokens; fewer than train_vocabulary if no further pair occurs twice
  // For texts with labels, or prompts with completions, instead of the four counts above:
  uint64_t train_texts = 0;
  uint64_t validation_texts = 0;
  uint64_t longest_tokens = 0;  // of the longest text
  std::vector<std::string> labels;
  std::string note;  // a sentence about the labels, or about fields that were taken as text; or ""
};

/// Turns text files (UTF-8, not empty) into a dataset in `folder`, and replaces one that is there. "-" is
/// standard input, and a pipe is read to its end. A byte order mark is skipped. The tokens do not depend on
/// the number of threads. Errors: invalid_argument (an option; labels together with completions; a folder of
/// other files), not_found, invalid_data (with the offset of bytes that are no text), unsupported (a
/// tokenizer with a feature that Loom lacks), disk_full, system_error.
LOOM_API Result<DatasetSummary> make_dataset(const std::vector<std::string>& files, const std::string& folder,
                                             const DatasetOptions& options = {});

/// The loss, nats a byte, of a byte-bigram model that is trained on the training text. It is evaluated on the
/// first `tokens` of the validation text (0: all). Any model should beat it. Errors: not_found, invalid_data,
/// unsupported, invalid_argument (files of the tokenizer contradict each other).
LOOM_API Result<double> bigram_baseline(const std::string& folder, uint64_t tokens = 0);

}  // namespace loom
