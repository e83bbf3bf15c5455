// Trainer: a whole run on one rank: data, model, engine, checkpoints and evaluations. What `loom train`
// drives, for programs that train without the command.
//
// All ranks call the same functions in the same order. Thread safety: one thread.
#pragma once

#include <loom/training.h>

#include <functional>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "train/breakdown.h"
#include "train/config.h"
#include "train/data.h"
#include "train/devices.h"
#include "train/memory_watch.h"
#include "train/pace.h"
#include "train/position.h"
#include "train/profiling.h"
#include "train/run_folder.h"
#include "train/same_on_all.h"
#include "train/stored_state.h"
#include "train/trace.h"

namespace loom::train {

using loom::StepRecord;

using loom::Measuring;

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
  const Devices& devices() const { return devices_; }
  /// The step that comes next.
  int64_t next_step() const { return progress_.next_step; }

  /// What rank 0 measured of the model's units; empty where the config does not ask for it, or it could not.
  const std::vector<engine::UnitProfile>& profiles() const { return findings_.profiles; }
  /// Sentences on what is not as the config asks for, on how a resumed run differs from the one before, and
  /// on why it ended early.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Means over the steps of this object but its first.
  const MeanBreakdown& measured() const { return findings_.measured; }
  /// As MemoryWatch::own_bytes(), since before the run was opened: of the process, or of this rank's GPU.
  int64_t measured_bytes() const { return memory_.own_bytes(); }
  /// Whether no step is left to be made.
  bool is_over() const { return progress_.next_step >= config_.run.steps; }
  /// Whether run() has ended early, since a rank was asked to stop.
  bool stopped() const { return asked_ && !is_over(); }
  /// What the machine can do; nothing where it was not measured.
  const std::optional<program::Machine>& machine() const { return findings_.machine; }
  /// Steps take their batches from what `wrap` makes of the source that they had.
  void wrap_batches(
      const std::function<std::unique_ptr<text::BatchSource>(std::unique_ptr<text::BatchSource>)>& wrap) {
    data_.train = wrap(std::move(data_.train));
  }
  /// What ranks did in the step that run.trace_step names, on rank 0 once it is done; empty elsewhere, and on
  /// GPUs, of which the host's clock does not tell when they compute.
  const std::optional<Trace>& trace() const { return findings_.trace; }

  /// One step, and nothing else.
  Result<StepRecord> step();
  /// Trains to the last step, with evaluations and checkpoints on the way; `tell` is called after each step.
  /// `stop`, if any, is asked once a step, once a batch of an evaluation, and when a model is saved. If it
  /// says yes on any rank, all end after that step. They save a checkpoint and give up an evaluation. Errors:
  /// not_finite, communication_error, disk_full ….
  Status run(const std::function<void(const StepRecord&)>& tell, const std::function<bool()>& stop = {});
  /// Mean loss over the validation split, or over its first run.evaluation_steps batches; nothing where there
  /// is none.
  Result<std::optional<double>> validate();
  /// Of the last validation of a classifier: the part of the texts whose likeliest class was the right one.
  const std::optional<double>& validation_accuracy() const { return findings_.validation_accuracy; }
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
  Status find_devices(weftComm_t world);
  Status measure_units(const model::ModelSpec& spec, int ranks, weftComm_t world);
  Status make_engine(const program::Job& job, weftComm_t world);
  Status place_in_data(const format::Json& manifest, int64_t step, bool own_run);
  Status find_beginning();
  Status measure_machine(const program::Job& job);
  Status begin();
  Status begin_anew();
  /// With the checkpoint that `state` was read from.
  Status go_on(const StoredState& state);
  Result<std::optional<StoredState>> state_to_begin_with();
  format::Json manifest() const;
  Status save_model_in(const std::string& folder);
  Status validate_after(StepRecord& record);
  /// Of the step that was done last.
  Status gather_trace();

  using Moment = MemoryWatch::Moment;
  /// What the run begins with.
  struct Start {
    Beginning beginning;
    std::optional<StoredState> state;  // until it is in
    std::string other_classes;         // a note on model.from, told where the run begins with it
  };
  /// How far the run is.
  struct Progress {
    int64_t next_step = 0;
    int64_t saved_step = -1;                   // whose checkpoint this object has written, or begun with
    int64_t from_step = 0, from_sequence = 0;  // of the data, that this object began with
    int64_t moments_begin = 0;                 // steps that had been applied when the moments were zeros
  };
  /// What was measured on the way.
  struct Findings {
    std::vector<engine::UnitProfile> profiles;
    std::optional<program::Machine> machine;
    MeanBreakdown measured;
    std::optional<double> validation_accuracy;
    std::optional<Trace> trace;
  };

  Config config_;
  model::ModelSpec spec_;
  format::Json origin_;  // of the config.json that the model came with: ids of tokens, and its type
  int threads_ = 1;
  Devices devices_;
  MemoryWatch memory_;
  std::optional<engine::Groups> groups_;
  std::unique_ptr<engine::Engine> engine_;
  Data data_;
  std::optional<RunFolder> folder_;
  Start start_;
  Progress progress_;
  Findings findings_;
  LossScaler loss_scaler_;
  std::vector<std::string> notes_;
  engine::StepResult last_;
  std::function<bool()> stop_;
  bool asked_ = false;  // some rank, to end the run
  Pace pace_;
};

}  // namespace loom::train
