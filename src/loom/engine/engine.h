// Engine: one rank's half of training: its share of a model's state, and the executor of programs over it.
//
// All ranks of the groups call the same functions in the same order. After a failure that is not an
// argument's, the engine is of no use but to be destroyed.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/groups.h"
#include "format/flat_shards.h"
#include "format/safetensors_reader.h"
#include "ops/operators.h"
#include "program/job.h"
#include "program/memory.h"
#include "program/program.h"
#include "program/simulate.h"

namespace loom::engine {

/// What a step needs besides the batch.
struct StepSettings {
  uint32_t step = 0;     // counts from 0
  uint64_t seed = 0;     // of dropout
  ops::AdamW optimizer;  // gradient_scale and step are filled in; weight_decay is for what decays
  float clip_norm = 0;   // gradients of a larger norm are scaled down to it; 0: not
};

struct StepResult {
  double loss = 0;           // mean over the targets of the global batch
  double gradient_norm = 0;  // before clipping
  double seconds = 0;
  double exposed_seconds = 0;  // in which this rank waited for collectives
};

/// Of the layout of a tensor rank's state in checkpoints. The first has the name that a state without tensor
/// ranks has.
inline std::string state_name(int tensor) {
  return tensor == 0 ? "state" : "state-t" + std::to_string(tensor);
}

class Engine {
 public:
  /// Plans memory and allocates all of it. `groups` must outlive the engine. Errors: invalid_argument (the
  /// job, or a job of other groups), out_of_memory, communication_error.
  static Result<std::unique_ptr<Engine>> create(const program::Job& job, const Groups& groups, int threads);
  virtual ~Engine() = default;

  const program::Job& job() const { return job_; }
  const program::Program& training() const { return training_; }
  const program::MemoryPlan& memory() const { return memory_; }
  std::span<const model::Unit> units() const { return whole_units_; }
  /// Bytes of the arena, and of workers' scratch.
  virtual int64_t memory_bytes() const = 0;
  /// Of each instruction of the last step, in µs from its beginning.
  std::span<const program::Interval> timeline() const { return timeline_; }

  /// Parameters from the job's seed; moments become zeros.
  virtual Status initialize(uint64_t seed) = 0;
  /// Parameters from Hugging Face's files, each rank its shard; moments become zeros.
  virtual Status load_model(const format::SafetensorsReader& file) = 0;
  /// Writes config.json and model.safetensors into a folder that is there: gathered unit by unit, written by
  /// rank 0. A collective.
  virtual Status save_model(const std::string& folder) = 0;

  /// How the state is laid out in checkpoints: master, first and second moment of every unit, as each tensor
  /// rank holds them.
  Result<std::vector<format::FlatLayout>> state_layouts() const;
  /// This rank's part of the state; replicas but the first write nothing.
  virtual Status save_state(const std::string& folder) const = 0;
  /// `state` has a reader for each tensor rank that there was when it was saved.
  virtual Status load_state(std::span<const std::unique_ptr<format::FlatReader>> state) = 0;

  /// What the next step or evaluation of microbatch `index` reads: tokens and targets, [batch, tokens] each.
  /// A negative target does not count, but the mean is over Job::targets_per_step(). A classification's are
  /// the classes, each at its sequence's first token.
  /// Without a prescaled batch, tensor rank t of T fills in its part: sequences [t · batch / T,
  /// (t + 1) · batch / T).
  virtual std::span<int32_t> tokens(int index) = 0;
  virtual std::span<int32_t> targets(int index) = 0;

  /// Errors: not_finite when the loss or the norm is not; then nothing has been changed. communication_error.
  virtual Result<StepResult> step(const StepSettings& settings) = 0;
  /// Mean loss over the global batch, without dropout and without gradients.
  virtual Result<double> evaluate() = 0;
  /// Logits of row `row` of microbatch 0 of this rank; a collective, on whatever rows.
  virtual Result<std::vector<float>> logits(int64_t row) = 0;

 protected:
  program::Job job_;
  std::vector<model::Unit> units_;        // as this rank holds them
  std::vector<model::Unit> whole_units_;  // as they are stored
  program::Program training_, evaluation_;
  program::MemoryPlan memory_, evaluation_memory_;
  std::vector<program::Interval> timeline_;
};

}  // namespace loom::engine
