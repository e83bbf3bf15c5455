// Trainer: a whole run on one rank: data, model, engine, checkpoints and evaluations. What `loom train`
// drives, for programs that train without the command.
//
// All ranks call the same functions in the same order. Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "format/checkpoints.h"
#include "train/config.h"
#include "train/data.h"

namespace loom::train {

/// What is told of a step, the same on all ranks but for the times and the memory.
struct StepRecord {
  int64_t step = 0;  // counts from 0
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double seconds = 0;
  double exposed = 0;  // part of the time spent waiting for collectives
  double tokens_per_second = 0;
  double flops = 0;  // of matrix products, a rank and second
  std::optional<double> validation_loss;
};

class Trainer {
 public:
  /// Opens everything, and resumes if the config says so and there is a checkpoint. `world` may be nullptr
  /// (one rank) and must outlive the trainer.
  static Result<std::unique_ptr<Trainer>> create(const Config& config, weftComm_t world);

  const Config& config() const { return config_; }
  const engine::Engine& engine() const { return *engine_; }
  const engine::Groups& groups() const { return *groups_; }
  const text::Tokenizer& tokenizer() const { return *data_.tokenizer; }
  int threads() const { return threads_; }
  /// The step that comes next.
  int64_t next_step() const { return next_step_; }

  /// Trains to the last step, with evaluations and checkpoints on the way; `tell` is called after each step.
  /// Errors: not_finite, communication_error, disk_full ….
  Status run(const std::function<void(const StepRecord&)>& tell);
  /// Mean loss over run.evaluation_steps batches of the validation split, or nothing where there is none.
  Result<std::optional<double>> validate();
  Status save_checkpoint();
  /// The model in Hugging Face's form, and the tokenizer, into run.out/model.
  Status save_model();

 private:
  explicit Trainer(const Config& config) : config_(config) {}
  Status resume();
  Status read_batch(const text::BatchSource& batches, int64_t step);
  Result<StepRecord> one_step();

  Config config_;
  int threads_ = 1;
  std::optional<engine::Groups> groups_;
  std::unique_ptr<engine::Engine> engine_;
  Data data_;
  std::optional<format::Checkpoints> checkpoints_;
  int64_t next_step_ = 0;
};

}  // namespace loom::train
