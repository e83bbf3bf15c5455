// Training: a run on one rank. All ranks of a job call the same functions in the same order; most of them are
// collectives. After any failure but invalid_argument, a run can only be destroyed. The newest checkpoint is
// intact.
//
// Thread safety: one thread.
#pragma once

#include <loom/config.h>
#include <weft/weft.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace loom {

namespace train {
class Trainer;
struct Comparison;
}  // namespace train

class Observer;

/// Whether a run with remaining steps first measures its machine, for forecasts and traces. It takes some
/// seconds. A GPU is not measured.
enum class Measuring { nothing, machine };

/// The record of a step. It is the same on all ranks, except times and rates.
struct StepRecord {
  int64_t step = 0;          // counts from 0
  double loss = 0;           // mean over the tokens of the global batch, nats
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 0;      // of this step of an fp16 run; 0: not an fp16 run
  bool skipped = false;       // gradients overflowed fp16, so the step was not applied
  int64_t skipped_steps = 0;  // up to and including this one
  double seconds = 0;         // of the step, including reading the batch
  double data_seconds = 0;    // of these, reading the batch on this rank
  /// Remaining time of the run at its pace since this object's first step, including evaluations, checkpoints
  /// and observers. If only step() was called, at the pace of the last step.
  double seconds_left = 0;
  /// Most memory that a process of the job has taken since before the run was opened, over all ranks; 0: not
  /// known.
  int64_t memory_bytes = 0;
  double exposed = 0;  // part of the time spent waiting for communication; NaN on a GPU
  /// Part of the time until the norm in which ranks, on average, do not compute; NaN on a GPU.
  double bubble = 0;
  double tokens_per_second = 0;
  double flops = 0;  // of matrix products, a rank and second
  std::optional<double> validation_loss;
  std::optional<double> validation_accuracy;  // of a classifier: the part of the texts that it gets right
};

class LOOM_API Training {
 public:
  /// Opens the dataset, plans and allocates memory, and resumes from the newest complete checkpoint of
  /// run.out if there is one and the config asks for it. A collective. `world` may be nullptr (one rank). The
  /// caller keeps it, and it must outlive the run. All ranks must have the same data and see the same
  /// run.out. They must have the same config, except threads and the names of folders of data and models. No
  /// other run may write into run.out while this object lives. Errors: invalid_argument (also when another
  /// run writes into run.out), invalid_data, not_found, out_of_memory, communication_error; unsupported if
  /// parallel.device is cuda and a rank has no GPU that can train the model.
  static Result<Training> create(const Config& config, weftComm_t world = nullptr,
                                 Measuring measuring = Measuring::nothing);

  Training(Training&& other) noexcept;
  Training& operator=(Training&& other) noexcept;
  ~Training();

  /// The config, with every open value filled in.
  Config config() const;
  int rank() const;
  int ranks() const;
  /// Parameters of the whole model.
  int64_t parameters() const;
  /// Bytes that this rank's arena and workers hold.
  int64_t memory_bytes() const;
  /// Where this rank computes: "CPUs", or a GPU's name and number.
  std::string device() const;
  /// The number of the next step, and the number of steps that the config asks for.
  int64_t next_step() const;
  int64_t steps() const;
  /// Sentences: what differs from the config, how a resumed run differs from the one before, and why it ended
  /// early. Each call of another function may add some.
  const std::vector<std::string>& notes() const;

  /// Adds an observer (observer.h), which must outlive the run. First calls its begin(), and note() for each
  /// note so far. A collective; ranks may have different observers. Errors: what begin() returns on any rank.
  Status observe(Observer& observer);

  /// Makes one step, without evaluation, checkpoint and observers. An fp16 run may skip it. Errors:
  /// not_finite (nothing was changed; an fp16 run has no smaller loss scale to try), communication_error,
  /// invalid_data (of the dataset).
  Result<StepRecord> step();
  /// Makes all remaining steps, with the evaluations and checkpoints that the config asks for. Calls `tell`,
  /// if any, after each step. Calls `stop`, if any, on each rank once a step, and once a batch of an
  /// evaluation. If `stop` returns true on a rank, all ranks end after the same step, with a checkpoint and
  /// without an evaluation. Errors also: disk_full, system_error.
  Status run(const std::function<void(const StepRecord&)>& tell = {}, const std::function<bool()>& stop = {});
  /// run(), then save_model() after the last step. Then calls end() of each observer, even after a failure.
  /// Errors also: what end() returns on any rank.
  Status complete(const std::function<bool()>& stop = {});
  /// Whether run() has ended early, because `stop` returned true on a rank.
  bool stopped() const;
  /// Mean loss over the validation split, or over its first run.evaluation_steps batches; nothing if there is
  /// no split. Nats, as StepRecord::loss. A collective. Errors: invalid_data, communication_error.
  Result<std::optional<double>> validate();
  /// Writes a checkpoint into run.out/checkpoints, unless this object has saved that step or begun with it.
  /// A collective. Errors: disk_full, system_error, communication_error; not_finite, if weights or moments
  /// are not finite; nothing is written then.
  Status save_checkpoint();
  /// Writes model and tokenizer in Hugging Face's form into run.out/model. A collective. Errors: disk_full,
  /// system_error, communication_error, invalid_argument (the file's type cannot hold a parameter).
  Status save_model();

  /// For Loom's own use.
  const train::Trainer& trainer() const;
  const train::Comparison& comparison() const;

 private:
  struct Inside;
  explicit Training(std::unique_ptr<Inside> inside);
  void tell_notes();
  std::unique_ptr<Inside> inside_;
};

}  // namespace loom
