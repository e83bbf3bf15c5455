// Engine: one rank's half of training: its share of a model's state, and the executor of programs over it.
//
// All ranks of the groups call the same functions in the same order. After a failure that is not an
// argument's, the engine is of no use but to be destroyed.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/kernel_times.h"
#include "engine/groups.h"
#include "engine/where.h"
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
  /// Of the steps before this one, those that the moments know nothing of: steps that were skipped, and all
  /// that were made before the moments began as zeros. The correction of their bias does not count these.
  uint32_t uncounted = 0;
  /// The loss is multiplied by it before backward, and gradients are divided by it where they are used, so
  /// that an fp16 job's derivatives are neither too small nor too large to be stored. Of other jobs: 1.
  double loss_scale = 1;
  /// What the loss is the mean over: targets of the global batch. 0: Job::targets_per_step().
  double targets = 0;
  /// Asked, if it is there, when ranks tell each other their losses: whether this one wants to end the run.
  const std::function<bool()>* stop = nullptr;
};

struct StepResult {
  double loss = 0;           // mean over the targets of the global batch
  double gradient_norm = 0;  // before clipping, of gradients that are not scaled
  /// Of an fp16 job: the loss or the norm is not finite, so no rank has changed anything.
  bool skipped = false;
  double begin_us = 0;  // by this host's steady clock
  double seconds = 0;
  /// In which this rank waited for communication, or the tier. On a GPU only for what ranks tell each other:
  /// the host cannot tell for what a GPU waits.
  double exposed_seconds = 0;
  double met_seconds = 0;  // of these, for what ranks tell each other at the norm
  bool stop = false;       // a rank wants to end the run; the same on all
  /// Part of the time until the norm is known in which a rank does not compute: the mean over all ranks. On a
  /// GPU waiting for a peer counts as computing.
  double bubble = 0;
};

/// Of the layout of the state that a stage's tensor rank has, in checkpoints. Those of the first have the
/// name that a state of one rank has.
std::string state_name(int stage, int tensor);

/// Of a checkpoint: for each stage that there was a reader for each tensor rank.
using StateReaders = std::vector<std::vector<std::unique_ptr<format::FlatReader>>>;

/// What a checkpoint has of a unit: the master, and the optimizer's slots, which it may be without.
constexpr std::string_view kMaster = "master";

/// Part `part`, "master" or a slot's name, of a whole unit's state, from what any layout wrote; the readers
/// must outlive it. Errors: invalid_data (another model), not_found (a checkpoint without the optimizer's
/// state).
Result<model::StoredShares> stored_part(const StateReaders& readers, const model::Unit& whole,
                                        std::string_view part);

/// Whether the optimizer's slots are there.
bool has_slots(const StateReaders& readers);

/// What is done in place of the operators of an instruction that computes; see Engine::stand_in().
using StandIn = std::function<void(const program::Instruction&)>;

class Engine {
 public:
  /// Plans memory and allocates all of it. The traits of its table of operators are the device's, whatever
  /// the job says. `groups` must outlive the engine, and have the same GPU. What the job offloads goes to a
  /// file in `tier_folder` ("": TMPDIR, or /var/tmp), or of a GPU to pinned memory. Errors: invalid_argument
  /// (the job, or a job of other groups, or a tier that is memory itself), out_of_memory,
  /// communication_error, disk_full, not_found; unsupported (no driver, cuBLASLt or kernels for that GPU;
  /// cuDNN is asked for and cannot compute the job's attention).
  static Result<std::unique_ptr<Engine>> create(const program::Job& job, const Groups& groups,
                                                const Where& where, const std::string& tier_folder = "");
  virtual ~Engine() = default;

  const program::Job& job() const { return job_; }
  const program::Program& training() const { return training_; }
  const program::MemoryPlan& memory() const { return memory_; }
  /// Whole, as they are stored.
  std::span<const model::Unit> units() const { return whole_units_; }
  /// Bytes of the arena: what a step or an evaluation needs, whichever is more.
  virtual int64_t arena_bytes() const = 0;
  /// Bytes of the arena, and of workers' scratch.
  virtual int64_t memory_bytes() const = 0;
  /// The arena itself, for those who look at what of it is used (engine/painted.h). Its state lives there.
  /// Empty on a GPU, whose memory the host does not reach.
  virtual std::span<std::byte> arena() = 0;
  /// What computes attention, and why not cuDNN.
  const ChosenAttention& attention() const { return attention_; }
  /// Of each instruction of the last step, in µs from its beginning. On a GPU: when the host queued it.
  std::span<const program::Interval> timeline() const { return timeline_; }

  /// Whether this rank has a part of the unit's state.
  bool holds(const model::Unit& unit) const { return training_.shards[unit.index] >= 0; }
  /// Parameters from the job's seed; the optimizer's slots get their initial values.
  virtual Status initialize(uint64_t seed) = 0;
  /// Parameters from Hugging Face's files, each rank its shard; slots as above.
  virtual Status load_model(const format::SafetensorsReader& file) = 0;
  /// Writes config.json and model.safetensors into a folder that is there: rank 0 writes what all ranks
  /// send, a piece of a unit at a time. Masters are rounded to `dtype`. A collective.
  virtual Status save_model(const std::string& folder, format::DType dtype = format::DType::f32) = 0;

  /// How the state of a stage's units is laid out in checkpoints: master and slots of each, as that tensor
  /// rank holds them. Without `optimizer` the masters alone.
  Result<format::FlatLayout> state_layout(int stage, int tensor, bool optimizer = true) const;
  /// This rank's part of the state; replicas but the first write nothing.
  virtual Status save_state(const std::string& folder, bool optimizer = true) const = 0;
  /// not_finite, with the unit's name, when a number of this rank's part of the state is infinite or none.
  virtual Status check_state() const = 0;
  /// From what any layout wrote. Slots that were not saved get their initial values.
  virtual Status load_state(const StateReaders& readers) = 0;

  /// What the next step or evaluation of microbatch `index` reads: tokens and targets, [batch, tokens] each.
  /// A negative target does not count, but the mean is over StepSettings::targets. A classification's are
  /// the classes, each at its sequence's first token. Without a prescaled batch, tensor rank t of T fills in
  /// its part: sequences [t · batch / T, (t + 1) · batch / T).
  virtual std::span<int32_t> tokens(int index) = 0;
  virtual std::span<int32_t> targets(int index) = 0;

  /// For benchmarks of schedules and messages: from now on, whatever computes a unit (program::is_compute)
  /// calls `stand_in` instead of operators. All else is as ever: the order, what is sent and waited for, sums
  /// and the optimizer. What a program leaves uncomputed keeps its bytes, and losses are 0. On CPUs only: a
  /// GPU's engine refuses the next step.
  void stand_in(StandIn stand_in) { stand_in_ = std::move(stand_in); }

  /// When the loss or the norm is not finite nothing is changed: an fp16 job says that it has skipped the
  /// step, others fail. Errors: not_finite, communication_error.
  virtual Result<StepResult> step(const StepSettings& settings) = 0;
  /// A step whose kernels and products are timed, by kind of instruction: where a GPU's time goes. It takes a
  /// little longer than others. What lanes move is not in it. Errors: step()'s; unsupported on CPUs, of whose
  /// instructions timeline() knows.
  virtual Result<std::vector<cuda::KernelTime>> timed_step(const StepSettings& settings) = 0;
  /// Mean loss over `targets` of the global batch (0: Job::targets_per_step()), without dropout and without
  /// gradients.
  virtual Result<double> evaluate(double targets = 0) = 0;
  /// Of a classification's last evaluation: sequences of the global batch whose likeliest class is the
  /// target.
  int64_t right() const { return right_; }
  /// Logits of row `row` of microbatch 0 of this rank; a collective, on whatever rows.
  virtual Result<std::vector<float>> logits(int64_t row) = 0;

 protected:
  program::Job job_;
  std::vector<model::Unit> units_;        // as this rank holds them
  std::vector<model::Unit> whole_units_;  // as they are stored
  program::Program training_, evaluation_, logits_;
  program::MemoryPlan memory_, evaluation_memory_, logits_memory_;
  std::vector<program::Interval> timeline_;
  StandIn stand_in_;
  ChosenAttention attention_;
  int64_t right_ = 0;
};

}  // namespace loom::engine
