// Objective: all that makes one task: the rows that the head reads, what it predicts of them, how the result
// is judged, and the data that it learns from. Each task's is one file of this folder; nothing else names a
// task, but for the enum and the list in objectives.cc.
//
// The loss of every objective is the cross-entropy between the head's outputs and the targets, the mean over
// all targets of the global batch.
//
// Thread safety: constants; functions that open data read files.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/spec.h"
#include "text/batches.h"

namespace loom::model {

struct FamilyDescription;
enum class Reads;

/// Rows of a microbatch that the head reads: all of them, those with targets, or one of each sequence
/// (ModelSpec::pooling), which has its target at its first token.
enum class HeadRows { all, with_targets, one_of_sequence };

/// What an evaluation tells: the loss, alone or a byte of text, or also the part of the sequences whose
/// likeliest class is the right one.
enum class Metric { loss, loss_per_byte, accuracy };

/// A split of a dataset's folder, with its tokenizer.
struct SplitOfData {
  const std::string& folder;
  text::Split split;
  const text::Tokenizer& tokenizer;
  text::BatchOptions options;
};
using OpenedData = Result<std::unique_ptr<text::BatchSource>>;

struct Objective {
  Task task;
  const char* name;  // of `model.task`
  HeadRows rows;
  /// The head's outputs are the spec's labels, of which every tensor rank has all, and not tokens.
  bool predicts_classes;
  bool continues_texts;  // the outputs are those of the next token
  Metric metric;
  /// Targets of a sequence of so many tokens; 0: all its tokens.
  int64_t (*targets)(int64_t tokens);
  /// Errors: not_found, invalid_data; invalid_argument with what would be right where the folder is for
  /// another task, or of another tokenizer.
  OpenedData (*open)(const SplitOfData& data);

  std::optional<Reads> usual_of;  // families that are made for it
  /// unsupported, with the families that have a head for it, or with the tasks of this one.
  Status (*check_family)(const FamilyDescription& family);
  const char* model_class;             // what the name of `transformers`' class ends with
  const char* problem_type = nullptr;  // of config.json

  /// Rows of a sequence that the head reads, where a job counts `targets` of it (0: all).
  int64_t rows_of_sequence(int64_t tokens, int64_t targets) const {
    return rows == HeadRows::one_of_sequence ? 1 : targets > 0 ? targets : tokens;
  }
};

const Objective& objective_of(Task task);
/// All of them.
std::span<const Objective* const> objectives();
/// By its name. Errors: invalid_argument with the names that there are.
Result<Task> task_from(std::string_view name);

extern const Objective kCausal, kMasked, kClassification;

}  // namespace loom::model
