// Trainer: a whole run on one rank: data, model, engine, checkpoints and evaluations. What `loom train`
// drives, for programs that train without the command.
//
// All ranks call the same functions in the same order. Thread safety: one thread.
#pragma once

#include <loom/training.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "base/folder_lock.h"
#include "engine/engine.h"
#include "format/checkpoints.h"
#include "train/breakdown.h"
#include "train/config.h"
#include "train/data.h"
#include "train/position.h"
#include "train/profiling.h"
#include "train/same_on_all.h"
#include "train/stored_state.h"
#include "train/trace.h"

namespace loom::train {

using loom::StepRecord;

/// Whether a run that has steps to make first measures what its machine can do, for forecasts and traces.
enum class Measuring { nothing, machine };

class Trainer {
 public:
  /// Opens everything, and resumes if the config says so and there is a checkpoint. `world` may be nullptr
  /// (one rank) and must outlive the trainer.
  static Result<std::unique_ptr<Trainer>> create(const Config& config, weftComm_t world,
                                                 Measuring measuring = Measuring::nothing);

  /// With what was left open filled in.
  const Config& config() const { return config_; }
  const engine::Engine& engine() const { return *engine_; }
  const engine::Groups& groups() const { return *groups_; }
  const text::Tokenizer& tokenizer() const { return *data_.tokenizer; }
  int threads() const { return threads_; }
  /// The step that comes next.
  int64_t next_step() const { return next_step_; }

  /// What rank 0 measured of the model's units; empty where the config does not ask for it, or it could not.
  const std::vector<engine::UnitProfile>& profiles() const { return profiles_; }
  /// Sentences on what is not as the config asks for, on how a resumed run differs from the one before, and
  /// on why it ended early.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Means over the steps of this object but its first.
  const MeanBreakdown& measured() const { return measured_; }
  /// Memory that came into use since before the run was opened: the process's own, so of all ranks where they
  /// are threads. The most that was seen, when the state was there, and after steps, evaluations, checkpoints
  /// and models that were saved, the first two of each; what one of these takes and gives back is not.
  int64_t measured_bytes() const { return measured_bytes_; }
  /// The same of the rank that took most.
  int64_t most_measured_bytes() const { return most_measured_bytes_; }
  /// Whether no step is left to be made.
  bool is_over() const { return next_step_ >= config_.run.steps; }
  /// Whether run() has ended early, since a rank was asked to stop.
  bool stopped() const { return stopped_; }
  /// Defaults where nothing was measured.
  const program::Machine& machine() const { return machine_; }
  /// Steps take their batches from what `wrap` makes of the source that they had.
  void wrap_batches(
      const std::function<std::unique_ptr<text::BatchSource>(std::unique_ptr<text::BatchSource>)>& wrap) {
    data_.train = wrap(std::move(data_.train));
  }
  /// What ranks did in the step that run.trace_step names, on rank 0 once it is done; empty elsewhere.
  const std::optional<Trace>& trace() const { return trace_; }

  /// One step, and nothing else.
  Result<StepRecord> step();
  /// Trains to the last step, with evaluations and checkpoints on the way; `tell` is called after each step.
  /// `stop`, if any, is asked once a step: when it says yes on any rank, all end after that step, with a
  /// checkpoint. Errors: not_finite, communication_error, disk_full ….
  Status run(const std::function<void(const StepRecord&)>& tell, const std::function<bool()>& stop = {});
  /// Mean loss over run.evaluation_steps batches of the validation split, or nothing where there is none.
  Result<std::optional<double>> validate();
  /// Of the last validation of a classifier: the part of the texts whose likeliest class was the right one.
  const std::optional<double>& validation_accuracy() const { return validation_accuracy_; }
  /// Nothing is written where this object has saved that step, or begun with it. Errors also: not_finite,
  /// when the state is not: no checkpoint is written then, and none is removed.
  Status save_checkpoint();
  /// The model in Hugging Face's form, and the tokenizer, into run.out/model.
  Status save_model();
  /// The same into run.out/models/step-00000100, after that step. Errors also: not_finite, as
  /// save_checkpoint().
  Status save_model_of_step();

 private:
  explicit Trainer(const Config& config)
      : config_(config), loss_scaler_(config.loss_scale, config.parallel.precision == "fp16") {}
  Result<model::ModelSpec> open();
  Status measure_units(const model::ModelSpec& spec, int ranks, weftComm_t world);
  Status check_goes_on(const format::Json& manifest) const;
  Status place_in_data(const format::Json& manifest, int64_t step, bool own_run);
  Status find_beginning();
  Status measure_machine(const program::Job& job);
  Status begin();
  Status begin_anew();
  /// With the checkpoint that `state` was read from.
  Status go_on(const StoredState& state);
  Status lock_folder();
  Result<std::optional<StoredState>> state_to_begin_with();
  Result<std::string> checkpoint_to_begin_with();
  /// Whether it is a checkpoint of this run, and not one that the config names.
  bool is_own() const { return beginning_.checkpoint != config_.run.resume_from; }
  Status with_one_before(const Status& status) const;
  Status with_way_back(Status status) const;
  Status begins_alone(const format::FoundCheckpoints& found) const;
  Result<std::vector<uint64_t>> hashes_of_places(uint64_t step) const;
  Result<format::Json> manifest(const std::vector<uint64_t>& hashes, std::vector<std::string>& files) const;
  Status commit_checkpoint(uint64_t step, const std::vector<uint64_t>& hashes);
  Status save_model_in(const std::string& folder);
  /// config.json, with the names of the dataset's labels and the ids of what begins and ends texts.
  format::Json model_config() const;
  Status read_batch(const text::BatchSource& batches, int64_t step);
  engine::StepSettings settings_of_step() const;
  enum class Moment { state, step, evaluation, checkpoint, model };
  Status look_at_memory(Moment after);
  double seconds_left(const StepRecord& record);
  /// Of the step that was done last.
  Status gather_trace();

  Config config_;
  model::ModelSpec spec_;
  format::Json origin_;  // the config.json that the model came with, as far as its ids of tokens go
  int threads_ = 1;
  std::optional<engine::Groups> groups_;
  std::unique_ptr<engine::Engine> engine_;
  Data data_;
  std::optional<FolderLock> lock_;  // of run.out, on rank 0
  std::optional<format::Checkpoints> checkpoints_;
  Beginning beginning_;
  std::optional<StoredState> state_;  // to begin with, until it is in
  int64_t saved_step_ = -1;           // whose checkpoint this object has written, or begun with
  int64_t next_step_ = 0;
  int64_t from_step_ = 0, from_sequence_ = 0;  // of the data, that this object began with
  int64_t moments_begin_ = 0;                  // steps that had been applied when the moments were zeros
  LossScaler loss_scaler_;
  std::vector<engine::UnitProfile> profiles_;
  std::vector<std::string> notes_;
  std::string other_classes_;  // a note on the model that the run would begin with, told where it does
  MeanBreakdown measured_;
  engine::StepResult last_;
  std::function<bool()> stop_;
  bool stopped_ = false;
  std::optional<double> validation_accuracy_;
  int64_t memory_before_ = 0, measured_bytes_ = 0, most_measured_bytes_ = 0;
  std::array<int, 5> looks_{};  // at memory, by Moment
  // When the first step of this object had been told, and which one it was: it is slower than others.
  std::optional<std::pair<std::chrono::steady_clock::time_point, int64_t>> pace_;
  program::Machine machine_;
  std::optional<Trace> trace_;
};

}  // namespace loom::train
