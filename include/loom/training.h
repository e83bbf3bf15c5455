// Training: a run on one rank. All ranks of a job call the same functions in the same order; most of them are
// collectives. After a failure that is not an argument's, a run is of no use but to be destroyed; the newest
// checkpoint is intact.
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

/// Whether a run that has steps to make first measures what its machine can do, for forecasts and traces. It
/// takes some seconds; a GPU is not measured.
enum class Measuring { nothing, machine };

/// What is told of a step; the same on all ranks but for times, and what is counted by them.
struct StepRecord {
  int64_t step = 0;          // counts from 0
  double loss = 0;           // mean over the tokens of the global batch, nats
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 0;      // of an fp16 run, in this step; 0: of another
  bool skipped = false;       // gradients overflowed fp16: nothing was applied
  int64_t skipped_steps = 0;  // of all up to this one
  double seconds = 0;         // with the reading of the batch
  double data_seconds = 0;    // of these, in which this rank read its batch
  /// That the rest of the run takes if it goes on as it did: by the clock since this object's first step,
  /// with evaluations, checkpoints and what is done when steps are told. Of step() alone by that step.
  double seconds_left = 0;
  /// Memory that a process of the job was seen to take since before the run was opened, the most of all
  /// ranks; 0 where it is not known.
  int64_t memory_bytes = 0;
  double exposed = 0;  // part of the time spent waiting for communication; NaN: on a GPU, as the next
  double bubble = 0;   // part of the time until the norm in which ranks, on average, do not compute
  double tokens_per_second = 0;
  double flops = 0;  // of matrix products, a rank and second
  std::optional<double> validation_loss;
  std::optional<double> validation_accuracy;  // of a classifier: the part of the texts that it is right on
};

class LOOM_API Training {
 public:
  /// Opens the dataset, plans and allocates memory, and resumes from the newest complete checkpoint of
  /// run.out if there is one and the config says so. A collective. `world` may be nullptr (one rank), stays
  /// the caller's and must outlive the run. All ranks must have the same config, but for the names of folders
  /// of data and models and for threads, the same data, and see the same run.out, which is this object's
  /// alone as long as it lives. Errors: invalid_argument (also when another run writes into run.out),
  /// invalid_data, not_found, out_of_memory, communication_error; unsupported, where parallel.device is cuda
  /// and a rank has no GPU that can train the model.
  static Result<Training> create(const Config& config, weftComm_t world = nullptr,
                                 Measuring measuring = Measuring::nothing);

  Training(Training&& other) noexcept;
  Training& operator=(Training&& other) noexcept;
  ~Training();

  /// With what was left open filled in.
  Config config() const;
  int rank() const;
  int ranks() const;
  /// Parameters of the whole model.
  int64_t parameters() const;
  /// Bytes that this rank's arena and workers hold.
  int64_t memory_bytes() const;
  /// Where this rank computes: "CPUs", or a GPU's name and number.
  std::string device() const;
  /// The step that comes next, and how many the config asks for.
  int64_t next_step() const;
  int64_t steps() const;
  /// Sentences on what is not as the config asks for, on how a resumed run differs from the one before, and
  /// on why it ended early. More may come with each call of another function.
  const std::vector<std::string>& notes() const;

  /// From now on `observer`, which must outlive the run, is told what happens (observer.h): first begin(),
  /// and the notes so far. A collective; ranks may have different observers. Errors: what begin() returns on
  /// any rank.
  Status observe(Observer& observer);

  /// One step, of which observers are not told: no evaluation, no checkpoint. Of an fp16 run it may be
  /// skipped. Errors: not_finite (then nothing has been changed; of an fp16 run when no smaller loss scale
  /// may be tried), communication_error, invalid_data (of the dataset).
  Result<StepRecord> step();
  /// Steps to the last one, with the evaluations and checkpoints that the config asks for. `tell`, if any,
  /// is called after each step. `stop`, if any, is asked once a step on each rank; when any says yes, all end
  /// after the same step, with a checkpoint and without an evaluation. Errors also: disk_full, system_error.
  Status run(const std::function<void(const StepRecord&)>& tell = {}, const std::function<bool()>& stop = {});
  /// run(), and save_model() after the last step. Whatever has ended it, observers are told the end. Errors
  /// also: what end() returns on any rank.
  Status complete(const std::function<bool()>& stop = {});
  /// Whether run() has ended early, since a rank was to stop.
  bool stopped() const;
  /// Mean loss over run.evaluation_steps batches of the validation split, or nothing where there is none.
  Result<std::optional<double>> validate();
  /// A checkpoint in run.out/checkpoints. Where this object has saved that step, or begun with it, nothing is
  /// to be done. Errors also: not_finite, when weights or moments are not; nothing is written then.
  Status save_checkpoint();
  /// Model and tokenizer in Hugging Face's form, in run.out/model.
  Status save_model();

  /// Inside of Loom.
  const train::Trainer& trainer() const;
  const train::Comparison& comparison() const;

 private:
  struct Inside;
  explicit Training(std::unique_ptr<Inside> inside);
  void tell_notes();
  std::unique_ptr<Inside> inside_;
};

}  // namespace loom
